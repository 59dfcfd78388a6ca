"""Build the native kernels when there is a C compiler; install without it when there is none.

The kernels are plain C without symbols of Python (`native/extension.py` loads them by ctypes), so
one wheel serves Python 3.11 and every later version.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
WINDOWS = sys.platform == "win32"
FLAGS = ["-O3", "-std=c11", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
EEGNET = "src/afor/bench/models/native"


class BuildKernels(build_ext):
    """Build libraries that ctypes loads, not modules that Python imports."""

    def get_export_symbols(self, _ext: Extension) -> list[str]:
        """Return no symbols: the sources mark what they export, and have no `PyInit_...`."""
        return []

    def build_extensions(self) -> None:
        """Compile with clang-cl on Windows: Microsoft's compiler lacks the vector types."""
        if WINDOWS and (clang := shutil.which("clang-cl")):
            self.compiler.initialize()
            self.compiler.cc = clang
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Remove a library of another name first, which Python would find before the new one."""
        target = Path(self.get_ext_fullpath(ext.name))
        for pattern in ("*.so", "*.pyd"):
            for old in target.parent.glob(ext.name.rpartition(".")[2] + pattern):
                old.unlink()
        super().build_extension(ext)


def kernel(name: str, source: str, contraction: str) -> Extension:
    """Return a kernel; `contraction` says whether a product and a sum may be rounded once."""
    folder = Path(source).parent
    flags = [*FLAGS, f"-ffp-contract={contraction}"]
    return Extension(
        name,
        sources=[source],
        depends=[path.as_posix() for path in folder.glob("*.h")],
        extra_compile_args=[f"/clang:{flag}" for flag in flags] if WINDOWS else flags,
        libraries=[] if WINDOWS else ["m"],
        optional=True,
        py_limited_api=True,
    )


def readme() -> str:
    """Return README.md with links that work on a package page, where there are no files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = re.search(
        r'^__version__ = "(.+)"', (ROOT / "src/afor/__init__.py").read_text(), re.MULTILINE
    )
    pages = f"{project['urls']['Source']}/blob/v{version[1]}/"
    images = pages.replace("//github.com/", "//raw.githubusercontent.com/").replace("/blob/", "/")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\g<1>{images}", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{pages}", text)


setup(
    ext_modules=[
        kernel("afor.native._kernel", "src/afor/native/kernel.c", "off"),
        # Other than the optimizer's, its bits may depend on the processor: torch's do.
        kernel("afor.bench.models.native._eegnet", f"{EEGNET}/eegnet.c", "fast"),
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
