"""From source files to prepared trials: checksums, filters, cutting, and the cache on disk.

Imports `common` and `data`. Start reading at `loading.prepare_subject`.
"""
