"""Compare methods: groups of runs, paired tests, noise floor, the paper's numbers.

`groups` collects runs per data set, network and optimizer, `comparisons` tests them, `labels`
says how names and numbers are printed. Imports `store` and what it imports, but not
`execution`. Start reading at `groups.collect_conditions`.
"""
