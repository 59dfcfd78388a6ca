"""Readers of data sets, one module per data set, with its options and checks.

Each module defines `DATASET`, which `data.catalog` looks up by name. `bids` reads with
`recordings`. Imports `common`, `data` and `data.formats`. Start reading at
`folder`, the simplest.
"""
