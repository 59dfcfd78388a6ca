"""Take the step of a whole parameter group in two Triton kernels, on CUDA.

`launch` prepares the address tables and launches the kernels; `kernels` needs triton and is
imported at the first step; `self_check` compares the first step on a device with the equations.
Imports torch, `afor.control`, `afor.reference` and `afor.tensors`. Start reading at
`launch.TritonStep`.
"""
