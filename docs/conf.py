"""Sphinx settings; `make docs` builds with warnings as errors, and without a network.

With DOCS_ONLINE=1 names of torch, MNE and others become links to their documentation.
"""

import os
import tomllib
from pathlib import Path

import afor

project = "AFOR"
author = "The AFOR developers"
project_copyright = "2026, The AFOR developers"
release = version = afor.__version__
extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"),
    *("sphinx-mathjax-offline", "sphinx_copybutton"),
]
if os.environ.get("DOCS_ONLINE"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "mne": ("https://mne.tools/stable", None),
        "braindecode": ("https://braindecode.org/stable", None),
    }
copybutton_prompt_text = "$ "  # what the commands print is not copied
copybutton_exclude = ".linenos, .gp, .go"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = [
    *("_build", "_templates", "results/*/*"),
    "explanation/speed-table*.md",  # included by another page
]
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["afor.css"]
html_title = "AFOR"
html_show_sourcelink = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
# The theme puts pages into the header and leaves the side empty; all pages at the side are found.
templates_path = ["_templates"]
html_sidebars = {"**": ["sidebar-all-pages.html"]}
project_file = Path(__file__).parents[1] / "pyproject.toml"
html_theme_options = {
    "navbar_center": [],
    "show_toc_level": 2,
    "github_url": tomllib.loads(project_file.read_text())["project"]["urls"]["Source"],
}
