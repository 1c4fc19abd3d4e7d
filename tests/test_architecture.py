"""Who may import whom, how large the rooms are, and what must work without torch."""

from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ssmprune"
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"

# The rooms in order: each imports only what stands above it, or stands on its own line.
ROOMS = (
    ("errors", "arrays", "_registry"),
    ("files", "progress"),
    ("discretization",),
    ("system",),
    ("norms", "layout"),
    ("regression",),
    ("criteria",),
    ("allocation",),
    ("methods",),
    ("limits",),
    ("plan",),
    ("certificates",),
    ("models",),
    ("adapters",),
    ("calibration",),
    ("apply",),
    ("pruning",),
    ("targets",),
    ("testing",),
    ("deploy",),
    ("tasks",),
    ("training",),
    ("bench",),
    ("sweeps",),
    ("results",),
    ("cli",),
)
