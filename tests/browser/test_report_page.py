"""The report in a real browser."""

import base64
import io
import json
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from afor.bench.report.page import render_report
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Curve, Results, TrainingCurves

AXE = Path(__file__).parent / "axe" / "axe.min.js"
GAINS = {"adam": 0.0, "adam_seed_1": 0.0, "mars": 0.01, "afor": 0.05, "<script>x</script>": 0.0}


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    made = simulate_results(GAINS, datasets=["bci2a", "isruc"], repetitions=2)
    results = Results.of(*made)
    loss = 1 / np.arange(1.0, 5.0)
    curves = {key: [Curve(loss, loss + 0.2, 3)] * 3 for key in results.conditions}
    results._training.append(TrainingCurves(curves, {}, {}))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(results), "utf-8")
    return path


@pytest.fixture
def page(browser, page_path):
    browser.get("about:blank")  # the same address with another fragment would not load anew
    browser.get(page_path.as_uri())
    return browser


def one(page, selector):
    return page.find_element("css selector", selector)


def every(page, selector):
    return page.find_elements("css selector", selector)


def choose(page, chart, title, text):
    """Choose an entry of a list by its label."""
    from selenium.webdriver.support.ui import Select

    for label in every(page, f"#chart-{chart} label.choice"):
        if label.text.startswith(title):
            return Select(label.find_element("css selector", "select")).select_by_visible_text(text)
    raise AssertionError(f"no list {title!r}")


def mark_texts(page, chart):
    return [m.get_attribute("aria-label") for m in every(page, f"#chart-{chart} svg [role='img']")]


def answer(page, chart):
    return one(page, f"#chart-{chart} [aria-live]").text


def table_column(page, table, column):
    rows = every(page, f"#{table} tbody tr:not(.heading):not([hidden])")
    return [row.find_elements("css selector", "th, td")[column].text for row in rows]


def test_nothing_is_logged_and_nothing_is_fetched(page, page_path):
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    addresses = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert page_path.as_uri() in addresses
    assert [url for url in addresses if url.startswith(("http", "ws", "ftp"))] == []


def test_only_the_scripts_of_the_page_run(page):
    page.execute_script("""
        const script = document.createElement("script");
        script.textContent = "window.foreign = true";
        document.body.append(script);
    """)
    assert page.execute_script("return window.foreign") is None


def test_a_column_sorts_within_its_sections(page):
    gain = 2  # the column after the optimizer and its verdict
    button = f"#table-comparisons th[data-column='{gain}'] button"
    before = table_column(page, "table-comparisons", gain)
    one(page, button).click()
    after = table_column(page, "table-comparisons", gain)
    assert sorted(before) == sorted(after)
    first = [float(text.rstrip("*~").replace("−", "-")) for text in after[:3]]
    assert first == sorted(first, reverse=True)
    one(page, button).click()
    turned = table_column(page, "table-comparisons", gain)
    assert turned[:3] == after[:3][::-1]


def test_names_sort_both_ways_and_the_reference_levels_stay_below(page):
    head = "#table-main th[data-column='0']"
    one(page, f"{head} button").click()
    names = table_column(page, "table-main", 0)
    assert one(page, head).get_attribute("aria-sort") == "ascending"
    assert names[:3] == sorted(names[:3], key=str.lower)
    one(page, f"{head} button").click()
    turned = table_column(page, "table-main", 0)
    assert one(page, head).get_attribute("aria-sort") == "descending"
    assert turned[:4] == names[:4][::-1]
    assert set(turned[4:7]) == {"Adam seed 1", "Majority class", "Chance level"}


def test_the_filter_keeps_what_matches_with_its_heading(page):
    one(page, "input[data-table='table-comparisons']").send_keys("isruc afor")
    assert table_column(page, "table-comparisons", 0) == ["AFOR", "AFOR"]
    headings = every(page, "#table-comparisons tr.heading:not([hidden])")
    assert all(h.text.startswith("ISRUC") for h in headings)


def test_pointing_at_a_run_names_its_subject_fold_and_repetition(page):
    from selenium.webdriver import ActionChains

    mark = every(page, "#chart-runs svg [role='img']")[7]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(page).move_to_element(mark).perform()
    tip = one(page, ".tip")
    assert tip.is_displayed()
    # Runs of equal value lie on each other; the tip is that of the uppermost.
    assert tip.text in mark_texts(page, "runs")
    assert "(fold 3), repetition 1: Acc " in mark.get_attribute("aria-label")


def test_tips_come_by_keyboard_too(page):
    from selenium.webdriver import Keys

    frame = one(page, "#chart-gains .frame")
    page.execute_script("arguments[0].focus()", frame)
    texts = mark_texts(page, "gains")
    for key, position in [
        (Keys.ARROW_RIGHT, 0), (Keys.ARROW_DOWN, 1), (Keys.END, -1), (Keys.ARROW_RIGHT, 0),
        (Keys.ARROW_LEFT, -1), (Keys.HOME, 0),
    ]:  # fmt: skip
        page.switch_to.active_element.send_keys(key)
        assert one(page, ".tip").text == texts[position]
        assert page.switch_to.active_element.get_attribute("aria-label") == texts[position]
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not one(page, ".tip").is_displayed()


def test_a_method_can_be_hidden_and_shown(page):
    assert any("AFOR is better" in text for text in mark_texts(page, "gains"))
    box = next(b for b in every(page, "#chart-gains .methods label") if b.text.strip() == "AFOR")
    box.click()
    assert not any("AFOR" in text for text in mark_texts(page, "gains"))
    box.click()
    assert any("AFOR is better" in text for text in mark_texts(page, "gains"))


def test_metric_and_data_set_can_be_switched(page):
    both = mark_texts(page, "gains")
    choose(page, "gains", "Data set", "ISRUC")
    assert 0 < len(mark_texts(page, "gains")) < len(both)
    choose(page, "gains", "Metric", "wF1")
    assert all("wF1" in text for text in mark_texts(page, "gains"))
    choose(page, "curves", "Data set and network", "ISRUC, EEGNet")
    assert "ISRUC" in one(page, "#chart-curves .frame").get_attribute("aria-label")


def test_the_verdict_stands_before_the_folds_of_a_pair(page):
    assert answer(page, "pairs").startswith("AFOR is better than Adam: Acc of AFOR is ")
    choose(page, "pairs", "against", "MARS")
    assert answer(page, "pairs").startswith("No verdict: the report tests every method against")
    assert any("AFOR" in t and "MARS" in t for t in mark_texts(page, "pairs"))
    choose(page, "pairs", "Method", "MARS")
    assert answer(page, "pairs") == "Choose two different methods."
    choose(page, "pairs", "Method", "Adam")
    assert "MARS" in answer(page, "pairs")
    assert "No verdict:" not in answer(page, "pairs")


def test_a_chart_is_saved_as_svg_and_png(page, downloads):
    page.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
    )
    for button in every(page, "#chart-pairs .downloads button"):
        page.execute_script("arguments[0].click()", button)
    files = [downloads / "paired-folds.svg", downloads / "paired-folds.png"]
    for _ in range(100):
        if all(file.exists() for file in files):
            break
        time.sleep(0.05)
    svg = ET.fromstring(files[0].read_text("utf-8"))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert "AFOR (filled) and Adam (open)" in "".join(svg.itertext())
    with Image.open(files[1]) as image:
        assert image.width == 3 * int(svg.attrib["width"])
        assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
        assert len(image.convert("RGB").getcolors(maxcolors=100_000)) > 20


def test_a_number_opens_its_folds_and_draws(page):
    link = one(page, "#table-main td a")
    target = link.get_attribute("href").rpartition("#")[2]
    details = page.find_element("id", target)
    assert details.get_attribute("open") is None
    link.click()
    assert details.get_attribute("open") is not None


def test_downloads_carry_their_content(page):
    link = one(page, "a[download='main.csv']")
    text = page.execute_script("return atob(arguments[0].href.split('base64,')[1])", link)
    assert text.startswith("dataset,backbone,method,metric,mean")


def test_without_scripts_everything_is_readable(browser_without_scripts, page_path):
    page = browser_without_scripts
    page.get(page_path.as_uri())
    assert "AFOR" in table_column(page, "table-main", 0)
    assert not one(page, "input.filter").is_displayed()
    assert every(page, "th button") == []
    assert "#condition-" in one(page, "#table-main td a").get_attribute("href")
    assert "afor report --static" in one(page, "noscript").text
    assert not any(chart.is_displayed() for chart in every(page, "div.explore"))


def test_on_paper_the_charts_are_painted_in_light_colours(page, set_media):
    set_media("dark")
    page.refresh()
    charts = every(page, "div.explore")
    assert len(charts) == 4
    assert all(chart.is_displayed() for chart in charts)
    dark = "return document.querySelector('#chart-gains svg').style.color"
    on_screen = page.execute_script(dark)
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script(dark) == "rgb(27, 31, 36)" != on_screen
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert page.execute_script(dark) == on_screen


@pytest.mark.parametrize("width", [1200, 380])
def test_the_page_itself_never_scrolls_sideways(page, set_size, width):
    set_size(width)
    page.refresh()
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(page, set_media, scheme):
    """Roles, labels, table headers, landmarks, focus, and a contrast of text of 4.5."""
    if not AXE.exists():
        pytest.skip("axe-core is not in tests/browser/axe (npm pack axe-core)")
    set_media(scheme)
    page.execute_script("document.querySelector('main > details:last-of-type').open = true")
    page.set_script_timeout(240)
    page.execute_script(AXE.read_text("utf-8"))
    found = page.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run({resultTypes: ['violations']}).then((r) => done(r), (e) => done(String(e)));"
    )
    barriers = [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]]
    assert barriers == []
    assert "color-contrast" in [rule["id"] for rule in found["passes"]]


CONTRASTS = """
const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const color = (text) => {
  const numbers = (text.match(/[\\d.]+/g) || []).map(Number);
  return text.startsWith("rgb") && numbers[3] !== 0 ? numbers : null;
};
const page = light(color(getComputedStyle(document.body).backgroundColor));
return [...document.querySelectorAll(arguments[0])].map((mark) => {
  const style = getComputedStyle(mark);
  const lights = [style.fill, style.stroke].map(color).filter(Boolean).map(light);
  const ratios = lights.map((l) => (Math.max(l, page) + 0.05) / (Math.min(l, page) + 0.05));
  return ratios.length ? Math.max(...ratios) : 99;
});
"""


def test_in_the_dark_no_dot_vanishes_and_nothing_is_white(page, set_media):
    set_media("dark")
    page.execute_script("document.querySelectorAll('details').forEach((d) => d.open = true)")
    for _ in range(100):  # charts are drawn anew after the change, on a busy machine late
        charts = page.execute_script(CONTRASTS, ".frame svg [role='img'], .frame svg path")
        if min(charts, default=0) >= 3:
            break
        time.sleep(0.1)
    static = page.execute_script(CONTRASTS, "figure svg use")
    assert len(charts) > 100
    assert len(static) > 50
    assert min(charts + static) >= 3
    size = page.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    taken = page.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    with Image.open(io.BytesIO(base64.b64decode(taken["data"]))) as image:
        gray = np.asarray(image.convert("L"))
    tiles = gray[: len(gray) // 10 * 10, : gray.shape[1] // 10 * 10]
    tiles = tiles.reshape(len(tiles) // 10, 10, -1, 10).min(axis=(1, 3))
    assert tiles.max() < 180  # no square of 10 pixels is bright throughout
