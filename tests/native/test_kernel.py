"""The native kernel: same numbers whatever the threads, the instruction set and the layout."""

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from afor import AFOR
from afor.control import FIELDS, ControlSettings
from afor.native import binding
from afor.native.binding import unavailable_reason
from afor.native.extension import declare
from afor.tensors import StepTensors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "afor" / "native" / "kernel.c"
FLAGS = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]

needs_kernel = pytest.mark.skipif(
    unavailable_reason() is not None, reason=str(unavailable_reason())
)
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

Shapes = list[tuple[int, ...]]
SHAPES: Shapes = [(1,), (2, 3), (17,), (1000,), (8192,), (8193,), (3, 40_001), (), (0,)]


def run(
    steps: int = 3,
    shapes: Shapes | None = None,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
    **options: object,
) -> list[torch.Tensor]:
    """Train on seeded gradients; return parameters and control state."""
    generator = torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    params = [torch.nn.Parameter(draw(shape)) for shape in shapes or SHAPES]
    optimizer = AFOR(params, lr=1e-2, weight_decay=1e-2, **options)  # type: ignore[arg-type]
    for _ in range(steps):
        for p in params:
            p.grad = (draw(tuple(p.shape)) + 0.3) * scale
        optimizer.step()
    return [*(p.detach() for p in params), *(optimizer.state[p]["control"] for p in params)]


def assert_same_bits(left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a, b)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_result_does_not_depend_on_the_number_of_threads(threads, dtype) -> None:
    shapes: Shapes = [(300_001,), (70_000,), (5,), (1 << 20,)]
    threads(1)
    expected = run(shapes=shapes, dtype=dtype, fused=True)
    for number in (2, 3, 4):
        threads(number)
        assert_same_bits(run(shapes=shapes, dtype=dtype, fused=True), expected)


@needs_kernel
def test_threads_of_its_own_give_the_same_bits_as_those_of_torch(threads, monkeypatch) -> None:
    threads(3)
    shapes: Shapes = [(300_001,)]
    expected = run(shapes=shapes, fused=True)
    monkeypatch.setattr(binding, "openmp_team", lambda: None)
    assert_same_bits(run(shapes=shapes, fused=True), expected)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_two_halves_of_a_step_give_the_bits_of_a_whole_one(threads, dtype) -> None:
    threads(2)
    expected = run(dtype=dtype, fused=True)

    def in_halves(step: binding.KernelStep) -> None:
        params, _, *state = step.tensors
        before = [t.clone() for column in (params, *state) for t in column]
        sums = step.sums()
        assert_same_bits(before, [t for column in (params, *state) for t in column])
        step.finish(sums)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("afor.native.binding.KernelStep.step", in_halves)
        patched.setattr("afor.optimizer.GroupPlan.build", lambda _: None)
        assert_same_bits(run(dtype=dtype, fused=True), expected)


@needs_kernel
@pytest.mark.parametrize("name", binding.ARRAYS)
def test_a_storage_that_is_resized_between_the_halves_is_not_touched(name) -> None:
    tensors = {n: [torch.ones(5) for _ in range(3)] for n in binding.ARRAYS}
    tensors["control"] = [torch.zeros(len(FIELDS)) for _ in range(3)]
    tensors["step"] = [torch.zeros(()) for _ in range(3)]
    settings = binding.kernel_settings(ControlSettings(), weight_decay=0.0, grad_factor=1.0)
    step = binding.KernelStep(StepTensors(*tensors.values()), 0.1, settings)
    sums = step.sums()
    tensors[name][1].untyped_storage().resize_(0)
    others = [t for n, ts in tensors.items() for i, t in enumerate(ts) if (n, i) != (name, 1)]
    before = [t.clone() for t in others]
    with pytest.raises(RuntimeError, match=f"{name} of tensor 1 .* larger than its storage"):
        step.finish(sums)
    assert_same_bits(before, others)


def build_kernel(library: Path, *flags: str) -> ctypes.CDLL:
    """Compile the kernel with further flags and load it."""
    command = [str(COMPILER), *FLAGS, "-w", *flags, "-shared", "-fPIC", str(SOURCE)]
    subprocess.run([*command, "-lm", "-lpthread", "-o", str(library)], check=True)
    return declare(ctypes.CDLL(str(library)), binding.FUNCTIONS)


@functools.cache
def results_of_this_kernel() -> list[torch.Tensor]:
    return run_all_loops()


def run_all_loops() -> list[torch.Tensor]:
    """Return the results of every loop of the kernel: dtypes, averages from either end, ranges."""
    results = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        results += run(dtype=dtype, fused=True)
        results += run(dtype=dtype, fused=True, betas=(0.3, 0.999), maximize=True)
    for scale in (1e-25, 1e25):
        results += run(scale=scale, fused=True)
    return results


@needs_kernel
@needs_compiler
@pytest.mark.parametrize(
    "flags",
    ["", "-march=x86-64-v3", "-DAFOR_WIDTH=32", "-O1 -DAFOR_WIDTH=64"],
)
def test_other_vectors_and_flags_give_the_same_bits(flags, tmp_path, monkeypatch) -> None:
    if "x86" in flags and binding.instruction_set() not in ("avx2", "avx512"):
        pytest.skip("the processor lacks AVX2")
    expected = results_of_this_kernel()
    loaded = build_kernel(tmp_path / "kernel.so", "-DAFOR_SCALAR", *flags.split())
    monkeypatch.setattr(binding, "_library", lambda: loaded)
    assert_same_bits(run_all_loops(), expected)


@needs_kernel
@needs_compiler
def test_the_loops_for_another_vendor_give_the_same_bits(threads, tmp_path, monkeypatch) -> None:
    threads(2)  # which loops are in use decides in which order two threads meet a large tensor
    expected = run_all_loops()
    loaded = build_kernel(tmp_path / "kernel.so", "-DAFOR_OTHER_VENDOR")
    problem = binding._select(loaded, "avx2")
    if problem is not None:
        pytest.skip(problem)
    monkeypatch.setattr(binding, "_library", lambda: loaded)
    assert_same_bits(run_all_loops(), expected)


@pytest.fixture
def select():
    library = binding._library()
    assert not isinstance(library, str)
    before = library.afor_selected().decode()
    yield lambda name: binding._select(library, name)
    assert binding._select(library, before) is None


@needs_kernel
@pytest.mark.parametrize("name", ["avx512", "avx2", "default"])
def test_every_instruction_set_of_the_processor_gives_the_same_bits(name, select) -> None:
    problem = select(name)
    if problem is not None:
        pytest.skip(problem)
    assert binding.instruction_set() == name
    found = run_all_loops()
    assert select("default") is None
    assert_same_bits(found, run_all_loops())


@needs_kernel
def test_the_best_instruction_set_is_chosen_unless_another_is_named(select) -> None:
    library = binding._library()
    assert not isinstance(library, str)
    usable = [name for name in binding._instruction_sets(library) if select(name) is None]
    assert usable[-1] == "default"
    assert select("") is None
    assert binding.instruction_set() == usable[0]


@pytest.fixture
def load_with(monkeypatch):
    """Load the kernel anew, as a process does in which AFOR_KERNEL_ISA names a set."""

    def load(name: str) -> None:
        monkeypatch.setenv("AFOR_KERNEL_ISA", name)
        binding._library.cache_clear()

    yield load
    monkeypatch.undo()
    binding._library.cache_clear()
    assert unavailable_reason() is None


def one_step(**options: object) -> None:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    AFOR([p], **options).step()  # type: ignore[arg-type]
    assert (p < 1).all()


@needs_kernel
def test_the_environment_variable_names_the_instruction_set(load_with) -> None:
    load_with("default")
    assert binding.instruction_set() == "default"
    one_step()
    one_step(fused=True)


@needs_kernel
def test_an_unknown_instruction_set_is_told_and_never_used(load_with) -> None:
    load_with("avx1024")
    told = "AFOR runs without its native kernel: AFOR_KERNEL_ISA=avx1024"
    with pytest.warns(UserWarning, match=told):
        assert binding.instruction_set() is None
    one_step()
    with pytest.raises(
        RuntimeError, match="names no instruction set of this native kernel; it has"
    ):
        one_step(fused=True)


@needs_kernel
@pytest.mark.skipif(
    unavailable_reason() is not None or binding.instruction_set() == "avx512",
    reason="the processor has every instruction set",
)
def test_an_instruction_set_that_the_processor_lacks_is_refused(select) -> None:
    before = binding.instruction_set()
    problem = select("avx512")
    assert problem is not None
    assert problem.startswith("AFOR_KERNEL_ISA=avx512 names ")
    assert binding.instruction_set() == before


@needs_kernel
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_the_control_state_agrees_with_the_for_loop_at_all_magnitudes(scale) -> None:
    half = len(SHAPES)
    native = run(steps=30, scale=scale, fused=True)[half:]
    loop = run(steps=30, scale=scale, foreach=False)[half:]
    for a, b in zip(native, loop, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=1e-30)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_precision_number_survives_the_way_through_float32(dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[every.isfinite()]
    param = torch.nn.Parameter(every.clone())
    param.grad = torch.ones_like(param)
    AFOR([param], lr=0.0, fused=True).step()
    assert torch.equal(param.detach().view(torch.int16), every.view(torch.int16))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_agrees_with_the_for_loop_to_the_last_bit_but_one(dtype) -> None:
    native, loop = (run(steps=20, dtype=dtype, fused=f, foreach=False) for f in (True, None))
    for a, b in zip(native, loop, strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=torch.finfo(dtype).eps, atol=1e-6)


def odd_layouts() -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    base = torch.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    last = torch.channels_last
    return [
        ("channels_last parameter", base.clone(memory_format=last), base.cos()),
        ("channels_last gradient", base.clone(), base.cos().contiguous(memory_format=last)),
        ("both", base.clone(memory_format=last), base.cos().contiguous(memory_format=last)),
        ("transposed parameter", base[0, 0].clone().t(), base[0, 0].cos().t().contiguous()),
        ("expanded gradient", base.clone(), torch.full((1,), 0.5).expand(2, 3, 4, 5)),
        ("parameter with gaps", base.clone()[..., ::2], base.cos()[..., ::2]),
        ("unaligned parameter", torch.linspace(0, 1, 101)[1:], torch.linspace(1, 2, 103)[3:]),
        ("size one", base.clone()[:1, :1], base.cos()[:1, :1].clone(memory_format=last)),
    ]


@needs_kernel
@pytest.mark.parametrize("case", odd_layouts(), ids=lambda case: case[0])
def test_any_layout_gives_the_numbers_of_the_for_loop(case) -> None:
    _, data, grad = case
    results = []
    for options in ({"fused": True}, {"foreach": False}):
        param = torch.nn.Parameter(data.clone(memory_format=torch.preserve_format))
        if "gaps" in case[0]:
            param = torch.nn.Parameter(data)
            param.data = data.clone().repeat_interleave(2, dim=-1)[..., ::2]
        optimizer = AFOR([param], lr=0.1, weight_decay=0.1, **options)
        for _ in range(5):
            param.grad = grad
            optimizer.step()
        results.append(param.detach().contiguous())
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-7)


@needs_kernel
@pytest.mark.parametrize("found", [False, True])
def test_grad_scaler_hands_its_scale_to_the_kernel(found) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    params = [torch.nn.Parameter(torch.ones(5)) for _ in range(2)]
    scaled, plain = AFOR([params[0]], fused=True), AFOR([params[1]], fused=True)
    grad = torch.linspace(-1, 1, 5)
    for step in range(4):
        inputs = torch.full((5,), torch.inf) if found and step == 2 else grad
        scaler.scale((params[0] * inputs).sum()).backward()
        given = params[0].grad.clone()
        before = [t.clone() for t in scaled.state[params[0]].values()]
        scaler.step(scaled)
        assert torch.equal(params[0].grad, given)
        if found and step == 2:
            for a, b in zip(scaled.state[params[0]].values(), before, strict=True):
                assert torch.equal(a, b)
        else:
            params[1].grad = grad.clone()
            plain.step()
        scaler.update()
        scaled.zero_grad()
    assert torch.equal(params[0], params[1])


@needs_kernel
def test_a_step_is_seen_by_the_profiler_and_keeps_its_plan() -> None:
    param = torch.nn.Parameter(torch.ones(5))
    param.grad = torch.ones(5)
    optimizer = AFOR([param])
    optimizer.step()
    plans = dict(optimizer._plans)
    with torch.profiler.profile(acc_events=True) as profile:
        optimizer.step()
    names = {event.key for event in profile.key_averages()}
    assert names == {"Optimizer.step#AFOR.step"}
    assert optimizer._plans == plans


@needs_kernel
def test_a_compiled_step_contains_the_kernel_as_one_operator() -> None:
    graphs = []

    def keep(module: torch.fx.GraphModule, _: object) -> object:
        graphs.append(module)
        return module.forward

    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = AFOR(model.parameters(), fused=True)
        step = torch.compile(optimizer.step, fullgraph=True, backend=keep)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            (step if compiled else optimizer.step)()
        results.append([p.detach() for p in model.parameters()])
    assert_same_bits(*results)
    assert len(graphs) == 1
    called = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert sum("afor.step" in str(target) for target in called) == 1


@needs_kernel
def test_backward_through_a_weight_that_a_step_has_changed_is_an_error() -> None:
    param = torch.nn.Parameter(torch.ones(3))
    loss = (param * param).sum()
    param.grad = torch.ones(3)
    AFOR([param], fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@needs_kernel
def test_what_the_user_replaces_between_steps_is_noticed() -> None:
    def trained(meddle: bool, **options: object) -> torch.Tensor:
        param = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = AFOR([param], lr=0.1, **options)  # type: ignore[arg-type]
        for step in range(8):
            param.grad = torch.linspace(1, 2, 7) * (step + 1)
            if meddle and step == 2:
                param.data = param.data.clone()
            if meddle and step == 3:
                optimizer.state[param]["exp_avg"] = optimizer.state[param]["exp_avg"].clone()
            if meddle and step == 4:
                state = optimizer.state[param]
                optimizer.state[param] = {k: v.clone() for k, v in state.items()}
            if meddle and step == 5:
                optimizer.state[param]["control"].data = optimizer.state[param]["control"].clone()
            optimizer.step()
        return param.detach()

    assert torch.equal(trained(True, fused=True), trained(False, fused=True))


def test_without_the_kernel_fused_says_why_and_none_falls_back(monkeypatch) -> None:
    monkeypatch.setattr(binding, "_library", lambda: "the native kernel was not built")
    param = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(RuntimeError, match=r"fused=True.*the native kernel was not built"):
        AFOR([param], fused=True)
    param.grad = torch.ones(3)
    AFOR([param], lr=0.1).step()
    assert (param != 1).all()


def test_a_kernel_of_another_version_is_refused(monkeypatch) -> None:
    class Other:
        @staticmethod
        def afor_abi() -> int:
            return 0

    built = SimpleNamespace(origin="_kernel.so")  # also where none is
    monkeypatch.setattr("importlib.util.find_spec", lambda _: built)
    monkeypatch.setattr(binding.ctypes, "CDLL", lambda _: Other())
    binding._library.cache_clear()
    try:
        assert "_kernel.so is of another version (interface 0" in str(binding._library())
    finally:
        monkeypatch.undo()
        binding._library.cache_clear()


@needs_compiler
def test_the_kernel_stays_inside_its_memory(tmp_path) -> None:
    driver = ROOT / "tests" / "native" / "driver.c"
    program = tmp_path / "driver"
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DAFOR_SCALAR"]
    command = [COMPILER, "-O1", "-g", "-std=gnu11", "-w", *sanitize, f"-I{SOURCE.parent}"]
    built = subprocess.run(
        [*command, str(driver), "-lm", "-lpthread", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"no address sanitizer here: {built.stderr.strip().splitlines()[-1]}")
    done = subprocess.run([str(program), "200003"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cases" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_compiler
def test_valgrind_finds_nothing_up_to_ten_million_elements(tmp_path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    program = tmp_path / "driver"
    driver = ROOT / "tests" / "native" / "driver.c"
    command = [COMPILER, *FLAGS, "-g", "-w", f"-I{SOURCE.parent}", str(driver)]
    subprocess.run([*command, "-lm", "-lpthread", "-o", str(program)], check=True)
    subprocess.run(
        ["valgrind", "-q", "--error-exitcode=9", str(program), "10000000"], check=True, timeout=3000
    )


def test_a_wheel_is_built_without_a_compiler(everywhere, tmp_path) -> None:
    # With one: tests/test_packaging.py.
    tree = everywhere.copy_sources(tmp_path / "tree", kernel=False)
    environment = {**os.environ, "CC": "no-such-compiler"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(tree)],
        env=environment,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("kernel.c") for name in names)
    assert not any(name.endswith(".so") for name in names)
