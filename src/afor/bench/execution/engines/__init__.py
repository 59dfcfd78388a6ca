"""Execute jobs: on local processes or on a dask cluster.

Imports `execution.jobs`, `training` and `store.spool`. Start reading at `local.LocalEngine`.
"""
