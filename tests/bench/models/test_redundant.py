"""Tensors whose gradient is rounding are found, and no others."""

import json

import torch
from torch import nn
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.models.input_shape import InputShape
from afor.bench.models.redundant import gradients

SHAPE = InputShape.unnamed(4, samples=32, rate_hz=32, classes=2)


class Net(nn.Module):
    def __init__(self, *, norm=True):
        super().__init__()
        self.first = nn.Linear(4 * 32, 16)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x.flatten(1)))))


def names(rows):
    return [row.name for row in rows if row.redundant]


def test_a_bias_before_a_batch_norm_is_found_and_nothing_else():
    assert names(gradients(Net, SHAPE)) == ["first.bias"]
    assert names(gradients(lambda: Net(norm=False), SHAPE)) == []


def test_random_numbers_of_the_process_are_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    gradients(Net, SHAPE)
    assert torch.rand(1) == expected


def test_the_command_names_the_shift_of_eegnet():
    result = CliRunner().invoke(app, ["models", "eegnet", "--redundant"])
    assert "temporal_norm.bias: 8 numbers" in result.stdout
    assert "1 of 12 tensors of eegnet do not change what it computes" in result.stdout
    rows = json.loads(CliRunner().invoke(app, ["models", "eegnet", "--redundant", "--json"]).stdout)
    assert [row["name"] for row in rows if row["redundant"]] == ["temporal_norm.bias"]
    missing = CliRunner().invoke(app, ["models", "--redundant"])
    assert isinstance(missing.exception, ConfigError)
    assert missing.exit_code != 0
