"""Every page of the documentation in a real browser: equations, overflow and images.

The pages are built by Sphinx, once. MathJax comes with them (sphinx-mathjax-offline), so that the
equations are typeset here as they are for a reader without a network.
"""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXTENSIONS = ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx-mathjax-offline")
SIZES = (1280, 390)

# What is wrong on the page at the present width. At 1280 pixels an equation, a table and a block of
# code fit into their column; on a telephone they scroll by themselves, and the page never does.
FAULTS = """
const [isWide, done] = arguments;
const measure = () => {
  const faults = [];
  const text = (node) => node.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) faults.push(`the page is ${root.scrollWidth} px wide`);
  for (const node of document.querySelectorAll("mjx-merror, .math-error")) {
    faults.push(`equation with an error: ${node.getAttribute("data-mjx-error") || text(node)}`);
  }
  for (const node of document.querySelectorAll("div.math, span.math")) {
    if (!node.querySelector("mjx-container")) faults.push(`equation not typeset: ${text(node)}`);
  }
  for (const node of document.querySelectorAll("article img")) {
    if (!node.naturalWidth) faults.push(`no image: ${node.getAttribute("src")}`);
    if (!node.alt) faults.push(`image without a description: ${node.getAttribute("src")}`);
  }
  if (isWide) {
    for (const node of document.querySelectorAll("article div.math, article table")) {
      const box = node.closest(".pst-scrollable-table-container") || node;
      if (box.scrollWidth > box.clientWidth + 1) {
        faults.push(`cut off by ${box.scrollWidth - box.clientWidth} px: ${text(node)}`);
      }
    }
  }
  done(faults);
};
const typeset = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();
const images = [...document.images].map((image) => {
  image.loading = "eager";
  return image.decode().catch(() => {});
});
Promise.all([typeset, ...images]).then(() => requestAnimationFrame(measure));
"""


@pytest.fixture(scope="module")
def built(filled_once):
    for name in EXTENSIONS:
        pytest.importorskip(name, reason="needs the extra docs: pip install '.[docs]'")

    def build(folder):
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        done = subprocess.run(
            [*command, str(DOCS), str(folder)],
            check=False, capture_output=True, text=True, timeout=840,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return filled_once("documentation", build)


@pytest.mark.timeout(900)
def test_the_documentation_builds_without_a_warning(built):
    assert (built / "index.html").is_file()


@pytest.mark.timeout(900)
def test_every_page_is_whole_on_a_screen_and_on_a_telephone(browser, set_size, built):
    browser.set_script_timeout(60)
    names = ("genindex.html", "search.html", "py-modindex.html")  # made by Sphinx alone
    pages = [path for path in sorted(built.rglob("*.html")) if path.name not in names]
    assert len(pages) > 40
    faults, equations = {}, 0
    for page in pages:
        browser.get(page.as_uri())
        equations += browser.execute_script("return document.querySelectorAll('.math').length")
        for width in SIZES:
            set_size(width)
            found = browser.execute_async_script(FAULTS, width == SIZES[0])
            if found:
                faults[f"{page.relative_to(built)} at {width} px"] = found
    assert equations > 20
    assert faults == {}


def test_a_fault_is_found(browser, set_size, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><article><img src='none.png' alt='x'><table style='width: 2000px'>"
        "<tr><td>wide</td></tr></table><mjx-merror data-mjx-error='no tag'></mjx-merror></article>"
    )
    set_size(SIZES[0])
    browser.get(page.as_uri())
    found = " ".join(browser.execute_async_script(FAULTS, True))
    for words in ("px wide", "no image: none.png", "equation with an error: no tag"):
        assert words in found
