"""Train one run: settings and windows in, a record out.

`run_spec` says what decides a run, `loop` trains it, `record` is what it leaves, `execute`
does all of it for a worker. Imports `common`, `data`, `models` and `optimizers`. Start reading
at `execute.train_run`.
"""
