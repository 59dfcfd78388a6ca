"""How long runs take: measured before the first, from finished ones, and at most.

`step_timing` times a few steps on random windows, `forecast` makes the time of a study of it,
`pace` uses finished runs, `limits` ends runs that hang. Imports `training`, `study` and `store`.
Start reading at `forecast.forecast`.
"""
