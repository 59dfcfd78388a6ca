"""Keep finished runs: the SQLite store, its lock and spool, and files of results.

`database` reads and writes runs, `tables` holds the tables, `files` converts to and from CSV, JSON
and Parquet. Imports `study` and what it imports. Start reading at `database.Store`.
"""
