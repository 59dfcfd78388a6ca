"""Build the networks that are trained: the paper's four and any other.

`registry` finds a network by its name, `input_shape` tells it about its input, and each
network has a module of its own. Imports `common` and `data`. Start reading at
`registry.build_backbone`.
"""
