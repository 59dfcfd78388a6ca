"""The Triton kernels against `reference.py` and the foreach path, in Triton's interpreter.

Run by `test_kernels.py` with TRITON_INTERPRET=1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor

import triton
from afor.control import FIELDS, ControlSettings, Sums, initial_control
from afor.reference import ReferenceState, reference_step, score
from afor.tensors import StepOptions, StepTensors
from afor.triton import kernels as triton_kernels
from afor.triton import launch as triton_path
from afor.triton import self_check
from afor.triton.launch import TritonStep, triton_unavailable_reason
from afor.update import implementations

# Infinity minus infinity is what some of these tests are about; NumPy, which interprets, warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")

ABLATIONS = {
    "full": {},
    "without the direction discount": {"direction_weight": 0.0},
    "without the fast channel": {"fast_channel": False},
    "without normalisation": {"normalization": "fixed"},
    "without the gate": {"warmup_steps": 0},
    "without the cumulative correction": {"correction": "fixed"},
    "with a fixed decay": {"beta2_min": 0.999},
    "calibrated": {"statistics": "calibrated"},
    "without eps": {"eps": 0.0},
    "without momentum": {"beta1": 0.0},
    "with a long memory": {"beta2": 0.999999},
}


def triton_step(*lists: list[Tensor], **options: Any) -> TritonStep:
    return TritonStep(StepTensors(*lists), StepOptions(**options))


@dataclass
class Group:
    """Parameters with their state, as the optimizer keeps it."""

    params: list[Tensor]
    exp_avgs: list[Tensor]
    exp_avg_sqs: list[Tensor]
    controls: list[Tensor]
    steps: list[Tensor]

    @classmethod
    def of(
        cls, params: Sequence[Tensor], s: ControlSettings, moments: torch.dtype | None = None
    ) -> "Group":
        control = torch.float64 if params[0].dtype in (torch.float64, torch.complex128) else None
        return cls(
            [p.clone() for p in params],
            [torch.zeros_like(p, dtype=moments) for p in params],
            [torch.zeros_like(p, dtype=moments) for p in params],
            [torch.tensor(initial_control(s), dtype=control or torch.float32) for _ in params],
            [torch.zeros(()) for _ in params],
        )

    def lists(self, grads: Sequence[Tensor]) -> list[list[Tensor]]:
        state = [self.exp_avgs, self.exp_avg_sqs, self.controls, self.steps]
        return [self.params, list(grads), *state]

    def tensors(self) -> list[Tensor]:
        return [t for column in self.lists([]) for t in column]


def _random(shapes: Sequence[tuple[int, ...]], seed: int = 0, **kind: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, **kind) for shape in shapes]


def _follow(
    shapes: Sequence[tuple[int, ...]], s: ControlSettings, *, steps: int, dtype: torch.dtype
) -> None:
    """Step kernels and reference side by side and compare all they have in common."""
    params = _random(shapes, dtype=dtype)
    group = Group.of(params, s)
    expected = [p.double() for p in params]
    states = [ReferenceState.start(p, statistics=s.statistics) for p in params]
    options = {k: v for k, v in s._asdict().items() if k not in ("beta1", "beta2")}
    tolerance = 1e-11 if dtype == torch.float64 else 5e-6
    for step in range(steps):
        grads = _random(shapes, seed=1 + step, dtype=dtype)
        triton_step(*group.lists(grads), settings=s, lr=0.01, weight_decay=0.1).step()
        for i, grad in enumerate(grads):
            expected[i], seen = reference_step(
                expected[i], grad, states[i],
                lr=0.01, betas=(s.beta1, s.beta2), weight_decay=0.1, **options,
            )  # fmt: skip
            control = dict(zip(FIELDS, group.controls[i].tolist(), strict=True))
            close = {"rel": tolerance, "abs": tolerance}
            rho = score(seen.ratio, states[i].agreement, s.direction_weight)
            names = ("noise_fast", "noise_slow", "agreement", "score_mean", "score_var")
            scored = [*(getattr(states[i], name) for name in names), rho, seen.zscore]
            if s.is_constant:  # no score is computed where it has no effect
                scored = initial_control(s)[: len(scored)]
            assert list(control.values())[: len(scored)] == pytest.approx(scored, **close)
            assert control["forgetting"] == pytest.approx(1 - seen.beta2, rel=tolerance * 10)
            assert control["correction"] == pytest.approx(
                1 - states[i].decay_product, rel=tolerance * 10
            )
            assert group.steps[i].item() == states[i].step
    for i, state in enumerate(states):
        for got, want in (
            (group.params[i], expected[i]),
            (group.exp_avgs[i], state.exp_avg),
            (group.exp_avg_sqs[i], state.exp_avg_sq),
        ):
            torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_the_interpreter_counts_as_available() -> None:
    assert triton_unavailable_reason() is None


def test_the_update_follows_the_reference_through_the_warm_up_at_odd_sizes() -> None:
    shapes = [(1,), (3, 5), (1023,), (8192 + 1,), (), (0, 4)]
    _follow(shapes, ControlSettings(warmup_steps=3), steps=5, dtype=torch.float32)


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_switch_follows_the_reference_in_float64(name: str) -> None:
    s = ControlSettings(**{"warmup_steps": 3, **ABLATIONS[name]})
    _follow([(7,)], s, steps=5, dtype=torch.float64)


def test_all_programs_of_a_tensor_see_the_control_of_the_step_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The interpreter runs the first program, which writes the new control, before the others.
    monkeypatch.setattr(triton_path, "MIN_PIECE", triton_kernels.BLOCK)
    triton_path._layout.cache_clear()
    _follow([(3 * 1024 + 5,)], ControlSettings(warmup_steps=0), steps=3, dtype=torch.float64)
    triton_path._layout.cache_clear()


def test_a_tensor_gives_the_same_bits_alone_and_in_a_group() -> None:
    s = ControlSettings()
    params, grads = _random([(5,), (9001,)]), _random([(5,), (9001,)], seed=1)
    together, alone = Group.of(params, s), Group.of(params[1:], s)
    for _ in range(2):
        triton_step(*together.lists(grads), settings=s, lr=0.01, weight_decay=0.0).step()
        triton_step(*alone.lists(grads[1:]), settings=s, lr=0.01, weight_decay=0.0).step()
    assert torch.equal(together.params[1], alone.params[0])
    assert torch.equal(together.controls[1], alone.controls[0])


def test_parts_of_a_tensor_with_completed_sums_take_the_step_of_the_whole() -> None:
    s = ControlSettings(warmup_steps=2)
    params = _random([(9001,), (5,)], dtype=torch.float64)
    params[1] = params[1].float()  # a launch of its own
    whole = Group.of(params, s)
    whole.controls[1] = whole.controls[1].float()
    cut = [[9001, 2], [0, 3]]  # elements that each part holds: all, some, none
    parts = [Group.of([p[:0] for p in params], s) for _ in cut]
    ranges = [[slice(0, 9001), slice(0, 2)], [slice(0, 0), slice(2, 5)]]
    for part, ends in zip(parts, ranges, strict=True):
        part.params = [p[end].clone() for p, end in zip(params, ends, strict=True)]
        part.exp_avgs = [torch.zeros_like(p) for p in part.params]
        part.exp_avg_sqs = [torch.zeros_like(p) for p in part.params]
        part.controls[1] = part.controls[1].float()
    options = {"settings": s, "lr": 0.01, "weight_decay": 0.1}
    for number in range(3):
        grads = _random([(9001,), (5,)], seed=1 + number, dtype=torch.float64)
        grads[1] = grads[1].float()
        triton_step(*whole.lists(grads), **options).step()
        pieces = [[grads[0], grads[1][:2]], [grads[0][:0], grads[1][2:]]]
        begun = [triton_step(*p.lists(g), **options) for p, g in zip(parts, pieces, strict=True)]
        completed = torch.zeros(5, 2, dtype=torch.float64)
        for step, held in zip(begun, cut, strict=True):
            completed += torch.stack(step.sums()) * _shares(held, params)
        for step in begun:
            step.finish(Sums(*completed.unbind()))
    for i in range(2):
        for column in ("params", "exp_avgs", "exp_avg_sqs"):
            joined = torch.cat([getattr(part, column)[i] for part in parts])
            torch.testing.assert_close(joined, getattr(whole, column)[i], rtol=1e-6, atol=1e-7)
        for part in parts:
            torch.testing.assert_close(part.controls[i], whole.controls[i], rtol=1e-6, atol=1e-7)
            assert part.steps[i] == 3


def test_memory_that_changes_before_the_second_half_is_not_touched() -> None:
    s = ControlSettings()
    group = Group.of(_random([(50,), (5,)]), s)
    grads = _random([(50,), (5,)], seed=1)
    step = triton_step(*group.lists(grads), settings=s, lr=0.01, weight_decay=0.0)
    sums = step.sums()
    group.exp_avgs[1].untyped_storage().resize_(0)
    before = group.params[0].clone()
    with pytest.raises(RuntimeError, match="resized while the sums were completed"):
        step.finish(sums)
    assert torch.equal(group.params[0], before)


def _shares(held: list[int], params: list[Tensor]) -> Tensor:
    """Return the factors of the five sums of each part: means count by their elements."""
    share = torch.tensor([n / p.numel() for n, p in zip(held, params, strict=True)])
    return torch.stack([share, share, *[torch.ones(len(held))] * 3]).double()


def test_without_momentum_the_average_is_the_gradient_exactly() -> None:
    s = ControlSettings(beta1=0.0)
    group = Group.of([torch.zeros(3)], s)
    group.exp_avgs[0].fill_(1e8)  # m + (g - m) would lose g
    triton_step(*group.lists([torch.ones(3)]), settings=s, lr=0.01, weight_decay=0.0).step()
    assert torch.equal(group.exp_avgs[0], torch.ones(3))


def _against_foreach(
    params: Sequence[Tensor],
    grads: Sequence[Sequence[Tensor]],
    *,
    moments: torch.dtype | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-7,
    **options: Any,
) -> Group:
    s = ControlSettings(warmup_steps=2)
    ours, theirs = Group.of(params, s, moments), Group.of(params, s, moments)
    settings = {"settings": s, "lr": 0.01, "weight_decay": 0.1, **options}
    for given in grads:
        before = [g.clone() for g in given]
        triton_step(*ours.lists(given), **settings).step()
        tensors = StepTensors(*theirs.lists(given))
        for part in implementations("foreach", tensors, StepOptions(**settings)):
            part.step()
        for kept, now in zip(before, given, strict=True):
            torch.testing.assert_close(now, kept, rtol=0, atol=0, equal_nan=True)
    for a, b in zip(ours.tensors(), theirs.tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
    return ours


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("moments", [torch.float32, None])
def test_half_precision_is_computed_in_float32(
    dtype: torch.dtype, moments: torch.dtype | None
) -> None:
    params = _random([(17,), (4, 3)], dtype=dtype)
    grads = [_random([(17,), (4, 3)], seed=1 + t, dtype=dtype) for t in range(3)]
    # The interpreter cuts bfloat16 where the compiled kernel rounds: up to one ulp a step.
    ulp = torch.finfo(dtype).eps
    group = _against_foreach(params, grads, moments=moments, rtol=4 * ulp, atol=ulp)
    assert group.exp_avgs[0].dtype == (moments or dtype)
    if moments is not None:  # nothing but the parameter is rounded
        momentum = torch.zeros(17)
        for given in grads:
            momentum = torch.lerp(momentum, given[0].float(), 0.1)
        torch.testing.assert_close(group.exp_avgs[0], momentum, rtol=1e-6, atol=1e-7)


def test_maximize_ascends_and_a_tensor_lr_is_taken() -> None:
    params = _random([(6,)])
    grads = [_random([(6,)], seed=1 + t) for t in range(2)]
    _against_foreach(params, grads, maximize=True, lr=torch.tensor(0.02))


def test_groups_of_mixed_dtypes_are_split() -> None:
    shapes = [(4,), (5,)]
    params = [_random(shapes)[0], _random(shapes, dtype=torch.float64)[1]]
    s = ControlSettings()
    group = Group.of(params, s)
    group.controls[1] = group.controls[1].double()
    grads = [torch.ones_like(p) for p in params]
    triton_step(*group.lists(grads), settings=s, lr=0.01, weight_decay=0.0).step()
    for p, start in zip(group.params, params, strict=True):
        torch.testing.assert_close(p, start - 0.01, rtol=0, atol=1e-7)


def test_a_scaled_gradient_is_unscaled_inside_and_left_as_it_was() -> None:
    s = ControlSettings()
    params, grads = _random([(6,)]), _random([(6,)], seed=1)
    plain, scaled = Group.of(params, s), Group.of(params, s)
    scale = torch.tensor([1024.0])
    triton_step(*plain.lists(grads), settings=s, lr=0.01, weight_decay=0.1).step()
    triton_step(
        *scaled.lists([g * 1024 for g in grads]), settings=s, lr=0.01, weight_decay=0.1,
        grad_scale=scale, found_inf=torch.zeros(1),
    ).step()  # fmt: skip
    for a, b in zip(plain.tensors(), scaled.tensors(), strict=True):
        assert torch.equal(a, b)


def test_a_step_the_scaler_skips_changes_nothing() -> None:
    s = ControlSettings()
    group = Group.of(_random([(6,), (9000,)]), s)
    grads = _random([(6,), (9000,)], seed=1)
    triton_step(*group.lists(grads), settings=s, lr=0.01, weight_decay=0.1).step()
    before = [t.clone() for t in group.tensors()]
    grads[0][2] = float("inf")
    triton_step(
        *group.lists(grads), settings=s, lr=0.01, weight_decay=0.1,
        grad_scale=torch.tensor([2.0]), found_inf=torch.ones(1),
    ).step()  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(before, group.tensors(), strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_non_finite_gradient_leaves_the_control_state(value: float) -> None:
    params = _random([(6,)])
    grads = [_random([(6,)], seed=1 + t) for t in range(3)]
    grads[1][0][3] = value
    group = _against_foreach(params, grads)
    assert group.controls[0].isfinite().all()


def test_any_strides_give_the_right_numbers() -> None:
    square, deep = _random([(4, 6), (2, 3, 4, 5)])
    params = [
        square.t(),
        deep.to(memory_format=torch.channels_last),
        _random([(3, 4)])[0],
        _random([(8,)])[0][::2],
    ]
    grads = [
        _random([(6, 4)], seed=1)[0],
        _random([(2, 3, 4, 5)], seed=2)[0].to(memory_format=torch.channels_last),
        _random([(3, 1)], seed=3)[0].expand(3, 4),
        _random([(4,)], seed=4)[0],
    ]
    _against_foreach(params, [grads, grads])


def test_lazily_conjugated_and_negated_gradients_give_the_right_numbers() -> None:
    s = ControlSettings()
    value = _random([(3,)], dtype=torch.complex64)[0]
    for lazy, plain in (
        (value.conj(), value.conj().resolve_conj()),
        (value.conj().imag, value.conj().imag.resolve_neg()),
    ):
        start = torch.zeros_like(plain)
        ours, theirs = Group.of([start], s), Group.of([start], s)
        triton_step(*ours.lists([lazy]), settings=s, lr=0.01, weight_decay=0.0).step()
        triton_step(*theirs.lists([plain]), settings=s, lr=0.01, weight_decay=0.0).step()
        assert torch.equal(ours.params[0], theirs.params[0])
        assert torch.equal(ours.controls[0], theirs.controls[0])


def test_memory_with_gaps_is_written_back() -> None:
    s = ControlSettings()
    buffer = torch.zeros(8)
    group = Group.of([torch.zeros(4)], s)
    group.params[0] = buffer[::2]
    triton_step(*group.lists([torch.ones(4)]), settings=s, lr=0.01, weight_decay=0.0).step()
    torch.testing.assert_close(buffer, torch.tensor([-0.01, 0.0] * 4))


def test_a_graph_that_saved_a_parameter_notices_the_step() -> None:
    s = ControlSettings()
    group = Group.of([torch.ones(3)], s)
    param = group.params[0].requires_grad_()
    loss = (param * param).sum()
    triton_step(*group.lists([torch.ones(3)]), settings=s, lr=0.01, weight_decay=0.0).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_complex_parameters_are_pairs_of_reals() -> None:
    params = _random([(3,)], dtype=torch.complex64)
    _against_foreach(params, [_random([(3,)], seed=1, dtype=torch.complex64)])


def test_state_on_another_device_is_refused() -> None:
    s = ControlSettings()
    group = Group.of(_random([(3,)]), s)
    group.steps[0] = torch.zeros((), device="meta")
    with pytest.raises(RuntimeError, match="step is on meta"):
        triton_step(*group.lists(_random([(3,)])), settings=s, lr=0.01, weight_decay=0.0).step()


@pytest.mark.parametrize("column", ["params", "exp_avgs", "exp_avg_sqs", "controls", "steps"])
def test_a_tensor_that_does_not_fit_is_refused(column: str) -> None:
    s = ControlSettings()
    group = Group.of(_random([(300,)]), s)
    getattr(group, column)[0] = torch.zeros(5)
    with pytest.raises(RuntimeError, match=r"fused AFOR: .* has shape"):
        triton_step(*group.lists(_random([(300,)])), settings=s, lr=0.01, weight_decay=0.0).step()


def test_a_storage_that_was_cut_short_is_refused() -> None:
    s = ControlSettings()
    group = Group.of(_random([(300,)]), s)
    group.exp_avgs[0].untyped_storage().resize_(4)
    with pytest.raises(RuntimeError, match="exp_avg is larger than its storage"):
        triton_step(*group.lists(_random([(300,)])), settings=s, lr=0.01, weight_decay=0.0).step()
    group.exp_avgs[0].untyped_storage().resize_(1200)


def test_the_kernels_pass_the_check_of_their_first_use() -> None:
    assert self_check.largest_error(TritonStep, torch.device("cpu")) < self_check.LIMIT / 10


def test_the_first_step_on_a_device_checks_the_kernels_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_path, "_can_check", lambda _: True)
    monkeypatch.setattr(self_check, "_passed", set())
    checks: list[torch.device] = []
    measure = self_check.largest_error

    def counted(step: Any, device: torch.device) -> float:
        checks.append(device)
        return measure(step, device)

    monkeypatch.setattr(self_check, "largest_error", counted)
    s, grads = ControlSettings(), _random([(3,)], seed=1)
    group = Group.of(_random([(3,)]), s)
    options = {"settings": s, "lr": 0.01, "weight_decay": 0.0}
    triton_step(*group.lists(grads), **options, check_fused=False).step()
    assert checks == []
    for _ in range(2):
        triton_step(*group.lists(grads), **options).step()
    triton_step(*group.lists(grads), **options)
    assert checks == [torch.device("cpu")]


def test_a_kernel_that_computes_something_else_takes_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_path, "_can_check", lambda _: True)
    monkeypatch.setattr(self_check, "_passed", set())
    right = triton_path.setting_values
    monkeypatch.setattr(  # a compiler that mistakes the rate for one that is 0.1 % larger
        triton_path, "setting_values", lambda s, lr, decay: right(s, 1.001 * lr, decay)
    )
    s = ControlSettings()
    group = Group.of(_random([(3,)]), s)
    before = [t.clone() for t in group.tensors()]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="`fused=True` gives wrong steps on cpu"):
            triton_step(
                *group.lists(_random([(3,)], seed=1)), settings=s, lr=0.01, weight_decay=0.0
            ).step()
    assert all(map(torch.equal, group.tensors(), before))


@triton.jit
def _gather_kernel(partials, out, pieces):
    tl.store(out, triton_kernels._gather(partials, 3, pieces, 0))


def test_many_partial_sums_add_up() -> None:
    partials = torch.arange(603, dtype=torch.float64)
    out = torch.zeros(1, dtype=torch.float64)
    _gather_kernel[(1,)](partials, out, 600)
    assert out.item() == partials[3:].sum().item()
