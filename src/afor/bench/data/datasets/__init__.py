"""Read one data set each: a module per data set, with its settings and its checks.

Each module defines `DATASET`, which `data.catalog` looks up by name. Imports `common`, `data`
and `data.formats`. Start reading at `folder`, the simplest.
"""
