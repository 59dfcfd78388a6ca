"""Take the step of a whole parameter group in two Triton kernels, on CUDA.

`launch` prepares the address tables and launches the kernels; `kernels` needs triton and is
imported at the first step. Imports torch and `afor.control`. Start reading at
`launch.triton_afor`.
"""
