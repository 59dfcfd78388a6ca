"""Build the optimizers that a study can name: the paper's seven, variants, controls.

`registry` lists them, `build` checks and constructs them, the other modules implement those that
torch does not have, on the base of `stepwise`. Imports `common` and `afor`. Start reading at
`build.build_optimizer`.
"""
