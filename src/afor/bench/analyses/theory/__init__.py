"""Evaluate Theorem 1 on a toy problem and on a run; its table and figure.

Imports `analyses.replay`, `training` and `report`. Start reading at `theorem.finite_bound`.
"""
