"""Evaluate the loss in a plane around a solution: computation, record, views.

Imports `analyses.replay`, `report` and `execution`. Start reading at `compute.landscape`.
"""
