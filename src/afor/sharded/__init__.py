"""Take the step on parameters that are sharded over several ranks (DTensor).

`step` computes the sums of the local shards, `completion` adds them up with one all-reduce and
checks that all ranks take part. Imports torch, `afor.control`, `afor.native`, `afor.tensors`,
`afor.torch_private` and `afor.update`. Start reading at `step.step_sharded`.
"""
