"""Take steps with the installed package, and load its native kernels; run in a clean environment.

    python tools/try_wheel.py            # fails without the native kernels
    python tools/try_wheel.py --no-kernel-needed

Prints one line. With the extra bench installed, `afor run smoke` is the test of the rest.
"""

import sys

import torch

import afor
from afor.native.binding import unavailable_reason


def main() -> int:
    """Step by every path on the CPU; return the exit code."""
    for options in ({}, {"foreach": True}, {"foreach": False, "fused": False}):
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        afor.AFOR([weight], **options).step()
        if not (weight < 1).all():
            print(f"a step with {options} changes nothing", file=sys.stderr)
            return 1
    reason = unavailable_reason()
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"afor {afor.__version__}, Python {python}, torch {torch.__version__}, ", end="")
    print("native kernel" if reason is None else f"no native kernel: {reason}")
    return int(reason is not None and "--no-kernel-needed" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
