"""Take the step of a whole parameter group in one call of a compiled C kernel.

`kernel.c` and `kernel_body.h` are built into the extension `afor.native._kernel`; `binding`
loads it, or gives the reason why it cannot be used; `group_plan` keeps its arguments between
steps. Imports torch, `afor.control` and `afor.torch_private`. Start reading at
`binding.fused_afor`.
"""
