"""Draw docs/images/report.png: verdict and results of a report, in Chromium without a window.

    afor demo
    python docs/figures/report_page.py results/demo.db

Needs chromium and chromedriver, on the path or named by AFOR_CHROMIUM and AFOR_CHROMEDRIVER.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from typer.testing import CliRunner

from afor.bench.cli.app import app

TARGET = Path(__file__).parents[1] / "images" / "report.png"
WIDTH = 900
END = "return document.querySelectorAll('h2')[1].getBoundingClientRect().top"  # of the results


def main(store):
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        arguments = ["report", store, "--output", str(page)]
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        print(result.stdout, end="")
        options = webdriver.ChromeOptions()
        options.binary_location = os.environ.get("AFOR_CHROMIUM") or shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(flag)
        options.add_argument("--user-data-dir=" + str(Path(folder) / "profile"))
        driver = os.environ.get("AFOR_CHROMEDRIVER") or shutil.which("chromedriver")
        browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
        try:
            size = {"width": WIDTH, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(page.as_uri())
            size["height"] = int(browser.execute_script(END)) - 20
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.save_screenshot(str(TARGET))
        finally:
            browser.quit()
    # The page has few colours: a palette takes a third of the bytes.
    picture = Image.open(TARGET).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(TARGET, optimize=True)
    print(TARGET)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "results/demo.db")
