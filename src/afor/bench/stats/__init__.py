"""Compare methods: conditions, paired tests, verdicts, the paper's numbers.

`groups` collects runs into conditions (data set × backbone × method), `comparisons` tests them
with `inference`, `design` judges what a study can decide, `labels` formats names and numbers.
Imports `store` and what it imports, but not `execution`. Start reading at
`groups.collect_conditions`.
"""
