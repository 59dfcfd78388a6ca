"""The command ``afor doctor``: what works on this machine, and how to fix the rest."""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import typer

from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.devices import cores
from afor.bench.store.locations import FOLDER

Status = Literal["ok", "note", "missing", "broken"]

EXTRAS = {
    "bench": ("numpy", "scipy", "matplotlib", "mne", "pydantic", "tomlkit"),
    "dask": ("dask", "distributed"),
    "moabb": ("moabb",),
}
# Time of a step on one core (AMD EPYC, AVX-512) with and without the native kernel, in steps of
# torch's Adam, printed by `python benchmarks/no_kernel.py`.
STEPS_OF_ADAM = {"EEGNet in training": (0.23, 1.46), "a tensor of 1,000,000": (0.08, 0.74)}
WITHOUT_KERNEL = (
    "on the CPU a step then takes, in steps of torch's Adam, "
    + " and ".join(
        f"{slow:.2f} instead of {fast:.2f} on {what}"
        for what, (fast, slow) in STEPS_OF_ADAM.items()
    )
    + " (python benchmarks/no_kernel.py)"
)
LOW_DISK_BYTES = 2 << 30


@dataclass(frozen=True)
class Finding:
    """One line of the output of `afor doctor`."""

    subject: str
    status: Status
    text: str


def doctor(*, as_json: bool = False, gpu: bool = False) -> None:
    """Check this machine: what works, and how to fix the rest.

    Args:
        gpu: Also compare AFOR's fused step on each GPU with the paper's equations.

    Example:
        afor doctor --gpu
    """
    findings = []
    for finding in chain(examine(FOLDER), examine_gpus() if gpu else ()):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{finding.status:<8} {finding.subject:<15} {finding.text}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.status == "broken" for finding in findings):
        raise typer.Exit(code=1)
    if not any(f.subject == "extra bench" and f.status == "missing" for f in findings):
        print_next("afor demo")


def examine(folder: Path) -> Iterator[Finding]:
    """Yield the findings; `folder` is the folder of the results."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("torch", "broken", f"does not import ({error}): pip install torch")
        return
    yield Finding("torch", "ok", torch.__version__)
    yield _cores(torch.get_num_threads())
    yield _kernel()
    yield from _accelerators()
    for extra, modules in EXTRAS.items():
        absent = [name for name in modules if importlib.util.find_spec(name) is None]
        if absent:
            text = f"without {', '.join(absent)}: pip install 'afor[{extra}]'"
            yield Finding(f"extra {extra}", "missing", text)
        else:
            yield Finding(f"extra {extra}", "ok", "installed")
    has_parquet = importlib.util.find_spec("pyarrow") is not None
    text = "installed" if has_parquet else "pip install pyarrow, for export to Parquet"
    yield Finding("parquet", "ok" if has_parquet else "missing", text)
    yield _name_clash()
    yield _disk(folder)


def _cores(torch_threads: int) -> Finding:
    text = f"{cores()} usable; torch would take {torch_threads}, a study fixes its own (1)"
    return Finding("cores", "ok", text)


def _kernel() -> Finding:
    from afor.native.binding import ISA_VARIABLE, instruction_set, unavailable_reason

    reason = unavailable_reason()
    if reason is None:
        text = f"compiled and loaded; AFOR uses it on the CPU, instruction set {instruction_set()}"
        if os.environ.get(ISA_VARIABLE):
            text += f" (chosen by {ISA_VARIABLE})"
        return Finding("native kernel", "ok", text)
    text = f"{reason}. AFOR works without it; {WITHOUT_KERNEL}"
    return Finding("native kernel", "missing", text)


def _accelerators() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Finding("cuda", "ok", names)
    else:
        yield Finding("cuda", "note", "no device")
    if torch.backends.mps.is_available():
        yield Finding("mps", "ok", "available")


def examine_gpus() -> Iterator[Finding]:
    """Yield, for each CUDA device, whether AFOR's fused step is right there."""
    import torch

    from afor.triton.launch import check_kernels, triton_unavailable_reason

    reason = triton_unavailable_reason()
    if reason is not None:
        yield Finding("fused step", "note", f"nothing to check: {reason}")
        return
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        try:
            check_kernels(device)
        except RuntimeError as error:
            yield Finding(f"fused, {device}", "broken", str(error))
        else:
            yield Finding(f"fused, {device}", "ok", "the steps are those of the equations")


def _name_clash() -> Finding:
    """Look for `AFOR.py` of afor-optimizer, which shadows `afor` on case-insensitive disks."""
    folders = [Path(entry or ".") for entry in sys.path]
    clashes = [folder / "AFOR.py" for folder in folders if _has_exactly(folder, "AFOR.py")]
    if not clashes:
        return Finding("afor-optimizer", "ok", "not installed, no clash of names")
    if _ignores_case(clashes[0].parent):
        text = (
            f"{clashes[0]} of afor-optimizer hides this package, because this disk does not tell "
            f"upper from lower case: pip uninstall afor-optimizer"
        )
        return Finding("afor-optimizer", "broken", text)
    text = f"{clashes[0]} is there; no clash on this disk, one on disks that ignore case"
    return Finding("afor-optimizer", "note", text)


def _has_exactly(folder: Path, name: str) -> bool:
    try:
        return any(entry.name == name for entry in folder.iterdir())
    except OSError:
        return False


def _ignores_case(folder: Path) -> bool:
    return (folder / "aFoR.pY").exists()


def _disk(folder: Path) -> Finding:
    parent = folder.resolve()
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    text = f"{free / 1e9:.1f} GB free for results in {folder}"
    if not os.access(parent, os.W_OK):
        return Finding("disk", "broken", f"{parent} is not writable: run elsewhere or use --store")
    return Finding("disk", "ok" if free > LOW_DISK_BYTES else "note", text)
