"""Build the networks that are trained: the paper's four and any other.

`registry` builds a network from its name, `input_shape` describes its input, and each network has a
module of its own; `authors` has the networks as the AFOR authors released them. Imports `common`
and `data`. Start reading at `registry.build_backbone`.
"""
