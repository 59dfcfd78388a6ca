"""Build tables, and print them as text, Markdown, LaTeX, CSV or JSON.

`formats` defines a table and its forms; the other modules build one family of tables each.
Imports `stats`. Start reading at `formats.Table`.
"""
