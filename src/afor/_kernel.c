int afor_kernel_abi(void) { return 0; }
