"""Judge the design of a study: its noise, its calibration, and what it can decide.

Imports `stats`. Start reading at `power.assess`.
"""
