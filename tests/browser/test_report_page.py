"""The report in a real browser: Chromium without a window, driven by selenium."""

import json
import os
import shutil
from pathlib import Path

import pytest

from afor.bench.report.page import ReportInput, render_report
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find(variable, names):
    found = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.skip(f"no {names[0]} here: install chromium and chromium-driver, or set {variable}")
    return found


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    gains = {"adam": 0.0, "adam_seed_1": 0.0, "mars": 0.01, "afor": 0.05, "<script>x</script>": 0.0}
    results, expected = simulate_results(gains, datasets=["bci2a", "isruc"], draws=2)
    html = render_report(collect_conditions(results, expected), ReportInput(results, ["r.db"]))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html, "utf-8")
    return path


@pytest.fixture
def browser(tmp_path, request):
    """Give a driver; JavaScript is off for tests with the parameter "off"."""
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = find("AFOR_CHROMIUM", BROWSERS)
    driver = find("AFOR_CHROMEDRIVER", ("chromedriver",))
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.add_argument("--window-size=1200,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
    if getattr(request, "param", "on") == "off":
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": 2}
        )
    started = selenium.Chrome(options, selenium.ChromeService(driver))
    yield started
    started.quit()


def table_column(browser, table, column):
    rows = browser.find_elements("css selector", f"#{table} tbody tr:not(.heading):not([hidden])")
    return [row.find_elements("css selector", "td")[column].text for row in rows]


def open_page(browser, path, fragment=""):
    browser.get(Path(path).as_uri() + fragment)


def test_nothing_is_logged_and_nothing_is_fetched(browser, page_path):
    open_page(browser, page_path)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert page_path.as_uri() in asked
    assert [url for url in asked if url.startswith(("http", "ws", "ftp"))] == []


def test_a_column_sorts_within_its_sections(browser, page_path):
    open_page(browser, page_path)
    gain = 2  # the column after the optimizer and its verdict
    button = f"#table-comparisons th[data-column='{gain}'] button"
    before = table_column(browser, "table-comparisons", gain)
    browser.find_element("css selector", button).click()
    after = table_column(browser, "table-comparisons", gain)
    assert sorted(before) == sorted(after)
    first = [float(text.rstrip("*~").replace("−", "-")) for text in after[:3]]
    assert first == sorted(first, reverse=True)
    browser.find_element("css selector", button).click()
    turned = table_column(browser, "table-comparisons", gain)
    assert turned[:3] == after[:3][::-1]


def test_the_filter_keeps_what_matches_with_its_heading(browser, page_path):
    open_page(browser, page_path)
    browser.find_element("css selector", "input[data-table='table-comparisons']").send_keys(
        "isruc afor"
    )
    assert table_column(browser, "table-comparisons", 0) == ["AFOR", "AFOR"]
    headings = browser.find_elements("css selector", "#table-comparisons tr.heading:not([hidden])")
    assert all(h.text.startswith("ISRUC") for h in headings)


def test_hovering_names_the_subject(browser, page_path):
    from selenium.webdriver import ActionChains

    open_page(browser, page_path, "#folds")
    row = browser.find_element("css selector", "g.fold")
    subject = row.find_element("css selector", "title").get_attribute("textContent").split()[0]
    ActionChains(browser).move_to_element(row).perform()
    tip = browser.find_element("css selector", ".tip")
    assert tip.is_displayed()
    assert tip.text.startswith(f"{subject} (fold ")


def test_a_number_opens_its_folds_and_draws(browser, page_path):
    open_page(browser, page_path)
    link = browser.find_element("css selector", "#table-main td a")
    target = link.get_attribute("href").rpartition("#")[2]
    details = browser.find_element("id", target)
    assert details.get_attribute("open") is None
    link.click()
    assert details.get_attribute("open") is not None


def test_downloads_carry_their_content(browser, page_path):
    open_page(browser, page_path)
    link = browser.find_element("css selector", "a[download='main.csv']")
    text = browser.execute_script(
        "return atob(arguments[0].href.split('base64,')[1])", link
    )  # fmt: skip
    assert text.startswith("dataset,backbone,optimizer,metric,mean")


@pytest.mark.parametrize("browser", ["off"], indirect=True)
def test_without_javascript_everything_is_readable(browser, page_path):
    open_page(browser, page_path)
    assert "AFOR" in table_column(browser, "table-main", 0)
    assert not browser.find_element("css selector", "input.filter").is_displayed()
    assert browser.find_elements("css selector", "th button") == []
    link = browser.find_element("css selector", "#table-main td a")
    assert "#condition-" in link.get_attribute("href")


@pytest.mark.parametrize("width", [1200, 380])
def test_the_page_itself_never_scrolls_sideways(browser, page_path, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    open_page(browser, page_path)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
