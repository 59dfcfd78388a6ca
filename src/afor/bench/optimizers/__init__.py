"""Build the optimizers that a study can name: the paper's seven, variants, controls.

`registry` lists them, `build` constructs and checks them, the others implement those that
torch does not have. Imports `common` and `afor`. Start reading at `build.build_optimizer`.
"""
