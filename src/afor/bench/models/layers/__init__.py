"""The layers of the networks, and fast equivalents of slow operations.

Imports `common` and `models.input_shape`. Start reading at `toeplitz.same_filter`.
"""
