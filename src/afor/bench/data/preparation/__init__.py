"""From source files to prepared trials: checksums, filters, cutting, and the cache on disk.

Start reading at `loading.prepare_subject`.
"""
