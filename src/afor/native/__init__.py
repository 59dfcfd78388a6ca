"""Take the step of a whole parameter group in one call of a compiled C kernel.

`kernel.c` and `kernel_body.h` are built into the extension `afor.native._kernel`; `extension` loads
such a library, or gives the reason why it cannot be used; `binding` calls it; `group_plan` keeps
its arguments between steps. Imports torch, `afor.control`, `afor.tensors`, `afor.known_group` and
`afor.torch_private`. Start reading at `binding.KernelStep`.
"""
