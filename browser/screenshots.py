"""Pictures of a report at two points of its slider, for the documentation: `make screenshots REPORT=report.html`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from chromium import Page, chromium

POINTS = {"report-50.png": {"method": "last", "ratio": 0.5}, "report-80.png": {"method": "surgeon", "ratio": 0.8}}
SIZE = (1100, 1950)


def main(report: Path, folder: Path) -> None:
    """Write the pictures, the second one of the dark page."""
    with TemporaryDirectory() as downloads, chromium(downloads, SIZE) as driver:
        page = Page(driver, report.resolve())
        for number, (name, point) in enumerate(POINTS.items()):
            page.open(dark=number == 1, **point)
            picture = page.picture("body")
            (folder / name).write_bytes(picture)
            print(f"{folder / name}: {page.shown}, {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
