"""Take the step on parameters that are sharded over several ranks (DTensor).

`step` computes the sums of the local shards, `completion` adds them up with one all-reduce and
checks that all ranks take part. Imports torch, `afor.control`, `afor.native`, `afor.sums`,
`afor.tensor_lists`, `afor.triton` and `afor.update`. Start reading at `step.sharded_afor`.
"""
