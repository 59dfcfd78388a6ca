"""Take the step of a whole parameter group in two Triton kernels, on CUDA.

`launch` prepares the tables of addresses and launches; `kernels` needs triton to import, so
it is imported when a step needs it. Imports torch and `afor.control`. Start reading at
`launch.triton_afor`.
"""
