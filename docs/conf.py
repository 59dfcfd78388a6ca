"""Sphinx settings; `make docs` builds with warnings as errors."""

import afor

project = "AFOR"
author = "The AFOR developers"
project_copyright = "2026, The AFOR developers"
release = version = afor.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]
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
html_theme_options = {"navbar_center": [], "show_toc_level": 2}
