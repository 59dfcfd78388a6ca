"""Provide the layers and numeric shortcuts that the networks are made from.

Imports `common` and `models.input_shape`. Start reading at `toeplitz.same_filter`.
"""
