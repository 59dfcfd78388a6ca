"""Load and step with damaged state, and see that nothing outside the tensors is touched.

Run in a process of its own, because a fault here ends the process:

    python tests/native/fuzz_state.py STATE_DICTS LIVE_STATES [SEED] [KERNEL]

Every case loads a damaged state dict, or damages the live state between two steps, and steps on
the default path, the for-loop or foreach. A case may be refused (ValueError or RuntimeError, the
optimizer unchanged by a refused load) or may go on. All tensors lie inside larger buffers, whose
other values must not change.
"""

import copy
import ctypes
import random
import sys
import warnings

import torch
from torch import nn

from afor import AFOR
from afor.native import binding
from afor.native.extension import declare
from afor.tensors import is_inside_storage

GUARD = 64  # elements on each side of a tensor
SENTINEL = 123.25
IMPLEMENTATIONS = [{}, {"foreach": False}, {"foreach": True}]
SHAPES = [(), (7,), (4, 64), (3, 5, 2), (300, 40)]


class Buffers:
    """Tensors inside larger buffers of a known value."""

    def __init__(self):
        self.all = []

    def guarded(self, value):
        n = value.numel()
        buffer = torch.full((n + 2 * GUARD,), SENTINEL, dtype=value.dtype)
        inner = buffer[GUARD : GUARD + n]
        inner.copy_(value.reshape(-1))
        self.all.append((buffer, n))
        return inner.view(value.shape)

    def check(self):
        for buffer, n in self.all:
            outside = torch.cat([buffer[:GUARD], buffer[GUARD + n :]])
            assert bool((outside == SENTINEL).all()), "a value outside a tensor was changed"


def optimizer_with_state(generator, dtype=torch.float32, steps=2):
    """Return an optimizer after a few steps, with everything it touches inside guards."""
    buffers = Buffers()
    params = [
        nn.Parameter(buffers.guarded(torch.randn(s, generator=generator).to(dtype))) for s in SHAPES
    ]
    implementation = random.Random(int(generator.initial_seed())).choice(IMPLEMENTATIONS)
    optimizer = AFOR(params, lr=1e-3, weight_decay=0.01, **implementation)
    feed(params, buffers, generator)
    for _ in range(steps):
        optimizer.step()
    for p in params:
        state = optimizer.state[p]
        for name in state:
            state[name] = buffers.guarded(state[name])
    return optimizer, params, buffers


def feed(params, buffers, generator):
    for p in params:
        p.grad = buffers.guarded(torch.randn(p.shape, generator=generator).to(p.dtype))


# ------------------------------------------------------------------------------- other tensors

SHAPE_CHANGES = [
    lambda t: t.reshape(-1)[: max(t.numel() // 2, 0)].clone(),
    lambda t: torch.cat([t.reshape(-1), t.reshape(-1)]),
    lambda t: t.reshape(-1).clone(),
    lambda t: t.clone()[None],
    lambda t: torch.zeros(0, dtype=t.dtype),
    lambda t: torch.zeros((), dtype=t.dtype),
    lambda t: torch.zeros(9, dtype=t.dtype),
    lambda t: torch.zeros((40_000, 64), dtype=t.dtype),
]


def cut(tensor):
    """Return a copy whose storage is freed or one element short."""
    copied = tensor.clone()
    size = copied.untyped_storage().nbytes()
    copied.untyped_storage().resize_(random.Random(size).choice([0, max(size - 4, 0)]))
    return copied


LAYOUT_CHANGES = [
    lambda t: t.double(),
    lambda t: t.half(),
    lambda t: t.to(torch.int64),
    lambda t: t.bool(),
    lambda t: t.to(torch.complex64),
    lambda t: t.to("meta"),
    lambda t: t.to_sparse() if t.ndim else t.clone(),
    lambda t: t[..., None].expand(*t.shape, 2)[..., 0] if t.ndim else t.clone(),
    lambda t: torch.zeros((), dtype=t.dtype).expand(t.shape),
    lambda t: t.t().contiguous().t() if t.ndim == 2 else t.clone(),
    lambda t: torch.cat([t, t], dim=-1)[..., ::2] if t.ndim else t.clone(),
    lambda t: torch._neg_view(t.clone()),
    lambda t: torch.full_like(t, float("nan")),
    lambda t: torch.full_like(t, float("inf")),
    lambda t: torch.full_like(t, -1e30),
    cut,
    cut,
]
OBJECTS = [None, "text", 3, -1, float("nan"), [1.0, 2.0], {}, 2**70]


def other_value(rng, value):
    """Return something else in the place of an entry of a state."""
    if not isinstance(value, torch.Tensor) or rng.random() < 0.15:
        return rng.choice(OBJECTS)
    change = rng.choice(SHAPE_CHANGES if rng.random() < 0.5 else LAYOUT_CHANGES)
    is_damaged = value.layout != torch.strided or value.device.type == "meta"
    if is_damaged or not is_inside_storage(value):
        return None
    return change(value.detach())


# ---------------------------------------------------------------------------------- state dicts


def damage_dict(rng, saved):
    """Change one or a few things of a state dict."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        where = rng.random()
        if where < 0.75:
            state = saved["state"][rng.randrange(len(SHAPES))]
            name = rng.choice(["exp_avg", "exp_avg_sq", "control", "step"])
            what = rng.random()
            if what < 0.1:
                state.pop(name, None)
            elif what < 0.2:
                state["extra"] = other_value(rng, state.get(name))
            else:
                state[name] = other_value(rng, state.get(name))
        elif where < 0.85:
            keys = list(saved["state"])
            a, b = rng.choice(keys), rng.choice(keys)
            saved["state"][a], saved["state"][b] = saved["state"][b], saved["state"][a]
        else:
            group = saved["param_groups"][0]
            key = rng.choice(list(group))
            group[key] = rng.choice(OBJECTS) if rng.random() < 0.7 else group[key]
            if rng.random() < 0.2:
                group.pop(key)


def bits(optimizer):
    return [
        (name, t.dtype, t.shape, t.reshape(-1).view(torch.uint8).numpy().tobytes())
        for state in optimizer.state.values()
        for name, t in state.items()
    ]


def try_state_dict(rng, generator):
    dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    source, _, _ = optimizer_with_state(generator, dtype)
    target, _, buffers = optimizer_with_state(generator, dtype, steps=1)
    saved = copy.deepcopy(source.state_dict())
    damage_dict(rng, saved)
    before = bits(target), repr(target.param_groups[0]["lr"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.load_state_dict(saved)
    except (ValueError, RuntimeError):
        assert (bits(target), repr(target.param_groups[0]["lr"])) == before
        outcome = "refused"
    else:
        outcome = "stepped"
    try:
        for _ in range(3):
            target.step()
    except RuntimeError:
        outcome = "step refused"
    buffers.check()
    return outcome


# ---------------------------------------------------------------------------------- live states


def damage_live(rng, optimizer, params):
    """Change one thing of parameters, gradients or state behind the optimizer's back."""
    p = rng.choice(params)
    state = optimizer.state[p]
    name = rng.choice(["param", "grad", "exp_avg", "exp_avg_sq", "control", "step"])
    if name not in ("param", "grad") and rng.random() < 0.45:
        if rng.random() < 0.2:
            del state[name]
        else:
            state[name] = other_value(rng, state[name])
        return
    tensor = {"param": p, "grad": p.grad}.get(name)
    tensor = state[name] if tensor is None else tensor
    change = rng.randrange(6)
    if change == 0:
        tensor.data = other_tensor(rng, tensor)
    elif change == 1:
        tensor.data = tensor.data.clone()
        tensor.data.resize_(rng.choice([0, 1, 3, tensor.numel() + 7]))
    elif change == 2:
        with torch.no_grad():
            tensor.set_(other_tensor(rng, tensor))
    elif change == 3:  # a storage of its own, then cut short
        tensor.data = tensor.data.clone()
        size = rng.choice([0, 4, max(tensor.untyped_storage().nbytes() - 4, 0)])
        tensor.untyped_storage().resize_(size)
    elif change == 4 and tensor.ndim == 2:
        tensor.data = tensor.data.t()
    else:
        tensor.data = tensor.data.clone()


def other_tensor(rng, tensor):
    changes = SHAPE_CHANGES + LAYOUT_CHANGES[:1] + LAYOUT_CHANGES[7:]
    return rng.choice(changes)(tensor.detach())


def try_live_state(rng, generator):
    dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.float16])
    optimizer, params, buffers = optimizer_with_state(generator, dtype)
    optimizer.step()  # a plan exists now
    try:
        damage_live(rng, optimizer, params)
    except (RuntimeError, NotImplementedError, TypeError):
        return "impossible"
    try:
        for _ in range(2):
            optimizer.step()
            outcome = "stepped"
    except RuntimeError:
        outcome = "step refused"
    buffers.check()
    return outcome


def main():
    dicts, lives = int(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if len(sys.argv) > 4:  # a kernel that was built in another way
        library = declare(ctypes.CDLL(sys.argv[4]), binding.FUNCTIONS)
        binding._library = lambda: library
    assert binding.unavailable_reason() is None, binding.unavailable_reason()
    torch.set_num_threads(2)
    counts: dict[str, int] = {}
    for case in range(dicts + lives):
        rng = random.Random(f"{seed} {case}")
        generator = torch.Generator().manual_seed(case)
        print("case", case, file=sys.stderr)  # the last one before a crash
        kind, run = (
            ("state dict", try_state_dict) if case < dicts else ("live state", try_live_state)
        )
        name = f"{kind} {run(rng, generator)}"
        counts[name] = counts.get(name, 0) + 1
    for name in sorted(counts):
        print(f"{name}: {counts[name]}")
    print(f"{dicts + lives} cases, 0 crashes")


if __name__ == "__main__":
    main()
