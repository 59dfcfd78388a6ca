"""What a constant beta2 could gain over 0.999, and what an adaptive rule leaves of it.

`compute` reads a finished study with a grid of beta2 and learning rates, `views` shows the result.
Imports `store`, `stats` and `report`. Start reading at `compute.measure_headroom`.
"""
