"""Describe a study in TOML, check it, and plan its runs.

`schema` reads and checks, `overrides` changes a study from the command line, `toml_io` writes it,
`plan` lists the runs, which `planned_runs` defines with their keys, `roles` says which optimizers
are controls; `presets/` holds the studies that come with the package. Imports `training` and what
it imports. Start reading at `schema.load_study`.
"""
