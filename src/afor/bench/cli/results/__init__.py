"""Commands on finished runs: single runs, files, tables, figures and the report.

Start reading at `tables.table`.
"""
