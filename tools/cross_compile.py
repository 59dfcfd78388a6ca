"""Compile the native kernels for systems that are not at hand, and print a table.

    python -m pip install ziglang
    python tools/cross_compile.py

zig brings Clang and the headers of the other systems; sources and flags are those of `setup.py`.
What is compiled here is neither linked nor run. Exit code 1 when something does not compile.
"""

import importlib.util
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from setuptools import Extension

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("aarch64-linux-gnu", "aarch64-macos", "x86_64-macos", "x86_64-windows-gnu")


def extensions() -> list[Extension]:
    """Return what `setup.py` builds."""
    with patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return list(setup.call_args.kwargs["ext_modules"])


def command(extension: Extension, target: str, output: Path) -> list[str]:
    """Return the command that compiles a kernel for another system."""
    sources = [str(ROOT / source) for source in extension.sources]
    return [
        sys.executable, "-m", "ziglang", "cc", "-target", target, "-c",
        *extension.extra_compile_args, "-Wall", "-fno-sanitize=all", *sources, "-o", str(output),
    ]  # fmt: skip


def main() -> int:
    """Compile every kernel for every target; return the exit code."""
    if importlib.util.find_spec("ziglang") is None:
        print("zig is not installed; run `python -m pip install ziglang`", file=sys.stderr)
        return 2
    failed = False
    print("| kernel | " + " | ".join(TARGETS) + " |\n|" + "---|" * (len(TARGETS) + 1))
    for extension in extensions():
        cells = []
        for target in TARGETS:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    command(extension, target, Path(folder) / "kernel.o"),
                    cwd=ROOT, capture_output=True, text=True, check=False,
                )  # fmt: skip
            if done.returncode:
                print(done.stderr, file=sys.stderr)
            failed |= bool(done.returncode)
            cells.append("failed" if done.returncode else "compiles")
        print(f"| {extension.name} | {' | '.join(cells)} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
