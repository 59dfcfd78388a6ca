"""EEGNet up to its classifier as compiled C code, forward and backward.

`eegnet.c`, `eegnet_set.h` and `eegnet_body.h` are built into the extension
`afor.bench.models.native._eegnet`; `binding` loads it, or gives the reason why it cannot be used;
`eegnet` makes it a differentiable function. Imports `common`, `models.layers`, `afor.native` and
`afor.torch_private`. Start reading at `eegnet.native_features`.
"""
