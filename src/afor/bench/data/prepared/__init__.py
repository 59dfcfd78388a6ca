"""Prepared trials: the checksums of their source files, and the cache on disk.

Imports `common` and `data.recording`. Start reading at `cache.write_subject`.
"""
