"""Pictures of a report as it opens, for the documentation: `make screenshots REPORT=report.html`."""

import sys
from pathlib import Path

from chromium import Page, chromium

# A wide light page and a narrow dark one: the size of the window, and what is chosen.
PICTURES = {
    "report-wide.png": ((1280, 1900), False, {}),
    "report-narrow.png": ((420, 3400), True, {"ratio": 0.8}),
}


def main(report: Path, folder: Path) -> None:
    """Write the pictures."""
    with chromium() as driver:
        page = Page(driver, report.resolve())
        for name, ((width, height), dark, point) in PICTURES.items():
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            page.open(dark=dark, **point)
            picture = page.picture("body")
            (folder / name).write_bytes(picture)
            print(f"{folder / name}: {page.shown}, {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
