"""Private names of torch: used in one module, and not needed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import afor
from afor import torch_private
from afor.torch_private import FALLBACKS, OPTIMIZER_ATTRIBUTES

PACKAGE = Path(afor.__file__).parent
PRIVATE = re.compile(
    r"torch(\.\w+)*\._[a-z]\w+|from torch\._|from torch(\.\w+)*\._|torch\._C|"
    r"from torch(\.\w+)* import [^\n]*\b_[a-z]"
)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_no_other_module_uses_a_private_name_of_torch(path):
    if path.name != "torch_private.py":
        code = re.sub(r"torch\.__\w+__", "", path.read_text())
        assert PRIVATE.search(code) is None


def test_the_search_finds_private_names():
    for line in (
        "torch._foreach_add_(x)",
        "torch._C._nn.f",
        "from torch.utils._foreach_utils import x",
        "from torch.optim.optimizer import _global_optimizer_pre_hooks",
    ):
        assert PRIVATE.search(line), line
    assert PRIVATE.search("torch.optim.Optimizer") is None


CASES = 3 * 2 * 2  # implementations, learning rates, numbers of tensors
# Takes steps by every implementation while torch seems to lack a name; prints what they gave. Each
# argument is the names that are absent, in a process of its own.
STEPS = """
import os, pkgutil, sys
import torch
import torch._dynamo  # as the first optimizer does, which takes a second

resolve = pkgutil.resolve_name
for absent in sys.argv[1:]:
    if len(sys.argv) == 2 or os.fork() == 0:
        break
    if os.wait()[1]:
        sys.exit(f"no steps without {absent}")
else:
    sys.exit()
absent = set(absent.split())

def lookup(name):
    if name in absent:
        raise AttributeError(name)
    return resolve(name)

pkgutil.resolve_name = lookup
from afor import AFOR
from afor.torch_private import FALLBACKS
assert absent <= set(FALLBACKS)
for options in ({"foreach": False, "fused": False}, {"foreach": True}, {}):
    for lr in (0.01, torch.tensor(0.01)):
        for count in (3, 40):
            torch.manual_seed(0)
            params = [torch.nn.Parameter(torch.randn(n % 5 + 1, 3)) for n in range(count)]
            optimizer = AFOR(params, lr=lr, weight_decay=0.1, maximize=True, **options)
            seen = []
            optimizer.register_step_post_hook(lambda *_: seen.append(1))
            for _ in range(4):
                for p in params:
                    p.grad = torch.randn(p.shape)
                optimizer.step()
            assert len(seen) == 4
            print(torch.cat([p.detach().flatten() for p in params]).double().tolist())
sys.stdout.flush()
os._exit(0)  # taking all modules of torch apart would take a second
"""


PREFIXES = ("torch._C", "torch.optim", "")


@pytest.fixture(scope="module")
def steps_without() -> dict[str | None, torch.Tensor]:
    """Give the parameters after the steps by the prefix of the names absent; None: no name."""
    absent = {p: [name for name in FALLBACKS if name.startswith(p)] for p in PREFIXES}
    assert all(absent.values())
    groups = ["", *(" ".join(names) for names in absent.values())]
    # Forked processes need not import torch again.
    calls = [groups] if hasattr(os, "fork") else [[group] for group in groups]
    printed = []
    for call in calls:
        result = subprocess.run(
            [sys.executable, "-c", STEPS, *call],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        printed += result.stdout.splitlines()
    assert len(printed) == CASES * len(groups)
    parts = [printed[n : n + CASES] for n in range(0, len(printed), CASES)]
    numbers = [[x for line in part for x in line.strip("[]").split(", ")] for part in parts]
    return {
        prefix: torch.tensor([float(x) for x in values])
        for prefix, values in zip((None, *PREFIXES), numbers, strict=True)
    }


@pytest.mark.parametrize("prefix", PREFIXES)
def test_steps_are_the_same_without_private_names(prefix, steps_without):
    torch.testing.assert_close(steps_without[prefix], steps_without[None], rtol=1e-5, atol=1e-6)


def test_private_attributes_that_an_optimizer_shares_with_torch_are_listed():
    of_torch = vars(torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]))
    shared = {name for name in vars(afor.AFOR) if name.startswith("_opt") or name in of_torch}
    assert shared - set(OPTIMIZER_ATTRIBUTES) == set()
    assert set(OPTIMIZER_ATTRIBUTES) <= set(vars(afor.AFOR))


def test_hooks_of_an_optimizer_are_where_they_are_looked_for_or_assumed():
    optimizer = afor.AFOR([torch.nn.Parameter(torch.ones(1))])
    for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        hooks = getattr(optimizer, name)
        assert hooks is torch_private.UNKNOWN_HOOKS or len(hooks) == 0
