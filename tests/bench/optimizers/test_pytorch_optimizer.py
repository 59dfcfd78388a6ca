"""Which optimizers of pytorch_optimizer work by name: the table of the page, class by class."""

import re
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import build_optimizer

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "optimizers.md"
VERSION = "4.1.0"  # of the table


def trains(name: str) -> bool:
    """Tell whether an optimizer takes a dozen steps on a small network and leaves it finite."""
    torch.manual_seed(0)
    layers = (nn.Conv1d(4, 8, 5), nn.BatchNorm1d(8), nn.ELU(), nn.Flatten(), nn.Linear(96, 2))
    net = nn.Sequential(*layers)
    before = [p.detach().clone() for p in net.parameters()]
    try:
        optimizer = build_optimizer(f"pytorch_optimizer:{name}", net, lr=1e-3, weight_decay=0.0)
        for _ in range(12):  # RAdam and AdaShift begin after some steps
            optimizer.zero_grad()
            inputs, labels = torch.randn(6, 4, 16), torch.randint(2, (6,))
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
    except (ConfigError, RuntimeError, ValueError):
        return False
    moved = any(not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    return moved and all(bool(p.isfinite().all()) for p in net.parameters())


def test_the_table_says_which_optimizers_work():
    package = pytest.importorskip("pytorch_optimizer")
    if version("pytorch_optimizer") != VERSION:
        pytest.skip(f"the table is of pytorch_optimizer {VERSION}")
    page = PAGE.read_text("utf-8")
    (table,) = re.findall(r"not usable as `pytorch_optimizer:Name` .*?\n((?:\|.*\n)+)", page)
    listed = {
        name
        for line in table.splitlines()[1:]
        for name in line.split("|")[1].replace(" ", "").split(",")
    }
    classes = {
        name
        for name, value in vars(package).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    } - {"Optimizer"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        working = {name for name in classes if trains(name)}
    assert classes - working == listed
    assert f"Of the {len(classes)} classes of pytorch_optimizer {VERSION}, {len(working)}" in page
