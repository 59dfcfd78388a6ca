"""Run the planned jobs of a study until its store is complete.

`runner` compares plan and store and gives the missing runs to an engine; `status` counts them,
`forecast` and `run_times` tell how long they take. Imports `store` and what it imports. Start
reading at `runner.run_study`.
"""
