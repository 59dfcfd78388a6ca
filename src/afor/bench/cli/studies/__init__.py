"""Commands that define, plan and train a study: demo, study, plan, run, status.

`selection` finds the study a command works on. Imports `study`, `store`, `execution` and `cli`.
Start reading at `run.run`.
"""
