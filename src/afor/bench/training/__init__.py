"""Train one run: settings and windows in, a record out.

`run_spec` defines the settings of a run, `loop` trains it with the steps of `fit`, `record` defines
its result, and `execute` runs all of it in a worker. Imports `common`, `data`, `models` and
`optimizers`. Start reading at `execute.train_run`.
"""
