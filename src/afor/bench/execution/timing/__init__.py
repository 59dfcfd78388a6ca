"""How long runs take: measured before the first, from finished ones, and at most.

`step_timing` times a short training on random windows, `forecast` makes the time of a study of it,
`run_times` uses finished runs and ends runs that hang. Imports `training`, `study` and `store`.
Start reading at `forecast.forecast`.
"""
