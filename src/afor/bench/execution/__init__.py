"""Run the planned jobs of a study until its store is complete.

`runner` compares plan and store and gives the missing runs to an engine; `progress`, `status`
and `describe` show them. Imports `store` and what it imports. Start reading at
`runner.run_study`.
"""
