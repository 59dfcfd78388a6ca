"""Build the native kernels when there is a C compiler; install without it when there is none."""

import sys

from setuptools import Extension, setup

FLAGS = [
    "-O3",
    "-std=c11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
]
WINDOWS = sys.platform == "win32"
EEGNET = "src/afor/bench/models/native"

kernel = Extension(
    "afor.native._kernel",
    sources=["src/afor/native/kernel.c"],
    depends=["src/afor/native/kernel_set.h", "src/afor/native/kernel_body.h"],
    extra_compile_args=[] if WINDOWS else [*FLAGS, "-ffp-contract=off"],
    libraries=[] if WINDOWS else ["m"],
    optional=True,
)
eegnet = Extension(
    "afor.bench.models.native._eegnet",
    sources=[f"{EEGNET}/eegnet.c"],
    depends=[f"{EEGNET}/eegnet_set.h", f"{EEGNET}/eegnet_body.h"],
    # Other than the optimizer's, its bits may depend on the processor: torch's do.
    extra_compile_args=[] if WINDOWS else [*FLAGS, "-ffp-contract=fast"],
    libraries=[] if WINDOWS else ["m"],
    optional=True,
)

setup(ext_modules=[kernel, eegnet])
