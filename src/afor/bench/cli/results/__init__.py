"""Commands on finished runs: single runs, files, tables, figures and the report.

Imports `store`, `stats`, `report`, `analyses` and `cli`. Start reading at `tables.table`.
"""
