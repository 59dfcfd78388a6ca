"""Show results: tables, figures, and the report page that contains both.

Imports `stats` and what it imports; knows no analysis. Start reading at `page.render_report`.
"""
