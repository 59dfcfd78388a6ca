"""The Triton kernels without a GPU: compiled ahead of time, and run in Triton's interpreter.

Triton reads at its import whether it interprets or compiles, so the interpreted tests are a file of
their own, `triton_interpreted.py`, run by pytest in a process of its own.
"""

import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from afor.control import FIELDS, ControlSettings, initial_control
from afor.tensors import StepOptions, StepTensors
from afor.triton.launch import MAX_PIECES, TritonStep, pieces, setting_values
from afor.update import Foreach

pytest.importorskip("triton", reason="Triton exists for Linux only")

POINTERS = {
    "addresses": "*i64",
    "layout": "*i64",
    "owners": "*i64",
    "settings": "*fp64",
    "partials": "*fp64",
    "snapshot": "*fp64",
    "grad_scale": "*fp32",
    "found_inf": "*fp32",
    "lr_tensor": "*fp32",
}


def is_recent_triton() -> bool:
    """Return True from the version on that the suite runs with, in which nothing may be skipped."""
    import triton

    return tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)


def test_the_kernels_do_what_the_reference_does_in_the_interpreter(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("triton_interpreted.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(cases)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stdout and not is_recent_triton():
        pytest.skip("the interpreter of this Triton does not work with this NumPy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
def test_both_kernels_compile_for_data_centre_gpus(
    architecture: int, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    import triton
    from afor.triton import kernels as triton_kernels

    wide = tl.float64 if precision == "float64" else tl.float32
    narrow = getattr(tl, precision)
    switched = precision != "float32"  # the plain case, and one with every switch turned
    constants: dict[str, Any] = {
        "PARAM": narrow, "GRAD": narrow, "MOMENT": wide, "CONTROL": wide, "STEP": tl.float32,
        "WORK": wide, "ALIGNED": True, "SCALED": switched, "CHECKED": switched,
        "LR_TENSOR": switched, "MAXIMIZE": switched, "FAST_CHANNEL": not switched,
        "SELF_NORMALIZED": not switched, "CUMULATIVE": not switched, "CALIBRATED": switched,
        "COMPLETED": switched,
    }  # fmt: skip
    for kernel in (triton_kernels.sums_kernel, triton_kernels.update_kernel):
        signature = {name: POINTERS.get(name, "constexpr") for name in kernel.arg_names}
        values = {name: value for name, value in constants.items() if name in signature}
        compiled = triton.compile(
            ASTSource(kernel, signature, values),
            target=GPUTarget("cuda", architecture, 32),
            options={"enable_fp_fusion": True},
        )
        ptx = compiled.asm["ptx"]
        assert f".target sm_{architecture}" in ptx
        assert compiled.asm["cubin"][:4] == b"\x7fELF"
        scalars = re.findall(r"math\.(?:exp|log) .*: (\w+)", compiled.asm["ttir"])
        assert set(scalars) <= {"f64"}, "the controller computes in float64"
        assert "atom." not in ptx, "an atomic would make the sums depend on the order of programs"
        assert "ld.global.v" in ptx, "whole blocks are read with wide loads"
        if precision == "bfloat16" and kernel is triton_kernels.update_kernel:
            assert "cvt.rn.bf16" in ptx, "the parameter is rounded, not cut"


def test_the_pieces_of_a_tensor_cover_it_and_depend_on_its_size_alone() -> None:
    for elements in (0, 1, 1024, 8192, 8193, 4_194_304, 4_194_305, 10**8):
        size, count = pieces(elements, 1024)
        assert size % 1024 == 0
        assert 1 <= count <= MAX_PIECES
        assert (count - 1) * size < max(elements, 1) <= max(count * size, 1)


def test_the_settings_vector_and_the_control_vector_have_the_places_the_kernels_read() -> None:
    from afor.triton import kernels as triton_kernels

    places = sorted(
        value.value
        for name, value in vars(triton_kernels).items()
        if name in {
            "_LR", "_WEIGHT_DECAY", "_MOMENTUM_WEIGHT", "_SLOW_WEIGHT", "_LOG_BETA1", "_LOG_BETA2",
            "_EPS", "_BETA2_RANGE", "_DIRECTION_WEIGHT", "_AGREEMENT_WEIGHT", "_WARMUP_STEPS",
            "_FIXED_MEAN", "_FIXED_SCALE", "_ZSCORE_CLIP", "_TINY", "_LARGEST",
        }
    )  # fmt: skip
    assert places == list(range(len(setting_values(ControlSettings(), 1e-3, 0.0))))
    assert triton_kernels._FIELDS.value == len(FIELDS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_on_a_gpu_two_launches_do_what_the_foreach_path_does(dtype: torch.dtype) -> None:
    shapes = [(1,), (3, 5), (1025,), (70_001,), (), (0, 4)]
    s = ControlSettings(warmup_steps=3)
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def fresh() -> list[list[torch.Tensor]]:
        zeros = [torch.zeros(x, dtype=wide, device="cuda") for x in shapes]
        control = torch.tensor(initial_control(s), dtype=wide, device="cuda")
        return [
            [z.to(dtype) for z in zeros],
            [z.clone() for z in zeros],
            zeros,
            [control.clone() for _ in shapes],
            [torch.zeros((), device="cuda") for _ in shapes],
        ]

    ours, theirs = fresh(), fresh()
    options = StepOptions(s, lr=0.01, weight_decay=0.1, check_fused=False)
    generator = torch.Generator("cuda").manual_seed(0)
    for step in range(6):
        grads = [torch.randn(x, dtype=dtype, device="cuda", generator=generator) for x in shapes]
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error" if step > 1 else before)  # compiled by then
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            TritonStep(StepTensors(ours[0], grads, *ours[1:]), options).step()
            torch.cuda.set_sync_debug_mode(before)
            torch.cuda.synchronize()
        launches = [e.name for e in profile.events() if e.name.endswith("_kernel")]
        assert launches == ["sums_kernel", "update_kernel"]
        Foreach(StepTensors(theirs[0], grads, *theirs[1:]), options).step()
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for a, b in zip(chain(*ours), chain(*theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_importing_the_package_does_not_import_triton() -> None:
    code = "import sys, afor, afor.triton.launch; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
