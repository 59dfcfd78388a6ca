"""Private names of torch: used in one module."""

import re
from pathlib import Path

import pytest
import torch

import afor
from afor import torch_private
from afor.torch_private import OPTIMIZER_ATTRIBUTES

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
