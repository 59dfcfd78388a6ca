"""Examine what AFOR's adaptation does: memory, subject shift, matched controls.

Imports `analyses.replay`, `analyses.step_log`, `store` and `report`. Start reading at
`memory.watch_memory`.
"""
