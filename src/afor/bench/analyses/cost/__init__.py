"""Measure what a step costs: operations, state, time; its table and figure.

Imports `models`, `optimizers` and `report`. Start reading at `compute.measure_cost`.
"""
