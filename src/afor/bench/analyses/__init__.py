"""Look inside trainings: loss landscape, cost, adaptation, headroom of beta2.

`replay` trains one run of a study again under observation, `step_log` records every step of
AFOR's controllers. Imports `execution`, `report` and what they import. Start reading at
`replay.replay`.
"""
