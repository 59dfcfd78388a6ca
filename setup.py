"""Build the native kernel when there is a C compiler; install without it when there is none."""

import sys

from setuptools import Extension, setup

FLAGS = [
    "-O3",
    "-std=c11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-Wno-psabi",
]

kernel = Extension(
    "afor.native._kernel",
    sources=["src/afor/native/kernel.c"],
    depends=["src/afor/native/kernel_set.h", "src/afor/native/kernel_body.h"],
    extra_compile_args=[] if sys.platform == "win32" else FLAGS,
    libraries=[] if sys.platform == "win32" else ["m"],
    optional=True,
)

setup(ext_modules=[kernel])
