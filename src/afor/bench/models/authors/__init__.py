"""Build the networks as the AFOR authors released them.

Imports `common` and `models`. Start reading at `eegnet`.
"""
