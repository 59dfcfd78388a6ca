"""A browser for tests: Chromium without a window, driven by selenium."""

import contextlib
import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_program(variable, names):
    program = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    if not program:
        pytest.skip(f"no {names[0]} here: install chromium and chromium-driver, or set {variable}")
    return program


@contextlib.contextmanager
def start_browser(folder, *, scripts=True):
    """Give a driver whose downloads go to `folder`."""
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = find_program("AFOR_CHROMIUM", BROWSERS)
    driver = find_program("AFOR_CHROMEDRIVER", ("chromedriver",))
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    options.add_argument("--window-size=1200,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    preferences = {"download.default_directory": str(folder)}
    if not scripts:
        preferences["profile.managed_default_content_settings.javascript"] = 2
    options.add_experimental_option("prefs", preferences)
    started = selenium.Chrome(options, selenium.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads):
    with start_browser(downloads) as started:
        yield started


@pytest.fixture(scope="module")
def browser_without_scripts(tmp_path_factory):
    with start_browser(tmp_path_factory.mktemp("without-scripts"), scripts=False) as started:
        yield started


@pytest.fixture
def set_size(browser):
    """Give a function that sets the width of the window in pixels; undone after the test."""

    def apply(width):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    yield apply
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def set_media(browser):
    """Give a function that chooses the colour scheme and screen or print; undone after the test."""

    def apply(scheme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": features}
        )

    yield apply
    apply()
