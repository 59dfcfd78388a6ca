"""Tensors that cannot change what a network computes are found and held, and no others."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from afor.bench.analyses.replay import find_run, replay
from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import isolated
from afor.bench.data.splits import Split
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.redundant import gradients, redundant_tensors
from afor.bench.models.registry import BACKBONES, build_backbone
from afor.bench.study.protocol import REDUNDANT, redundant_notes
from afor.bench.study.schema import parse_study
from afor.bench.training.loop import train, train_bundle
from afor.bench.training.run_spec import RunSettings

SHAPE = InputShape.unnamed(4, samples=32, rate_hz=32, classes=2)
EEGNET = ["temporal_norm.weight", "temporal_norm.bias"]


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


@pytest.mark.parametrize(
    ("name", "settings"),
    [("eegnet", {}), ("eegnet", {"norm_eps": 0.1}), ("eegnet_authors", {})],
)
def test_a_scale_before_a_norm_is_redundant_whatever_the_epsilon(name, settings):
    """The epsilon is 1e-3, 0.1 and 1e-5; a threshold on the gradient itself splits them."""
    shape = InputShape.unnamed(12, samples=128, rate_hz=128, classes=4)
    rows = gradients(partial(build_backbone, name, shape, **settings), shape)
    assert names(rows) == EEGNET
    assert all(row.size > 1e-3 for row in rows if not row.redundant)


def test_the_command_names_scale_and_shift_of_eegnet():
    result = CliRunner().invoke(app, ["models", "eegnet", "--redundant"])
    assert "temporal_norm.bias: 8 numbers" in result.stdout
    assert "2 of 12 tensors of eegnet do not change what it computes" in result.stdout
    rows = json.loads(CliRunner().invoke(app, ["models", "eegnet", "--redundant", "--json"]).stdout)
    assert [row["name"] for row in rows if row["redundant"]] == EEGNET
    missing = CliRunner().invoke(app, ["models", "--redundant"])
    assert isinstance(missing.exception, ConfigError)
    assert missing.exit_code != 0


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"hslt", "hslt_authors"}))
def test_the_tensors_named_in_plan_and_report_are_those_that_are_found(name):
    shape = DATASET_SHAPES["DEAP"]
    found = redundant_tensors(lambda: build_backbone(name, shape), shape)
    assert found == REDUNDANT.get(name, ())


def test_a_network_of_ones_own_is_looked_at_where_the_caller_can():
    parts = {"datasets": ["synthetic"], "backbones": ["mine:Net"], "optimizers": ["afor"]}
    study = parse_study({"name": "x", **parts})
    assert redundant_notes(study) == []
    (note,) = redundant_notes(study, lambda _: ["first.bias"])
    assert note.startswith("first.bias of mine:Net cannot change")
    held = parse_study({"name": "x", **parts, "training": {"hold_redundant": True}})
    assert "they are held still" in redundant_notes(held, lambda _: ["first.bias"])[0]
    one = {"name": "one", "optimizer": "afor", "training": {"hold_redundant": True}}
    methods = [{"name": "two", "optimizer": "adam"}, one]
    del parts["optimizers"]
    mixed = parse_study({"name": "x", **parts, "methods": methods})
    assert "one hold them still, the other" in redundant_notes(mixed, lambda _: ["first.bias"])[0]


def tensors(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("backbone", ["eegnet", "eegnet_authors"])
@pytest.mark.parametrize("optimizer", ["adam", "sophia", "afor"])
def test_held_tensors_keep_their_first_values_alone_and_in_a_bundle(optimizer, backbone):
    windows = ArrayWindows(
        np.random.default_rng(0).standard_normal((24, 8, 128), dtype=np.float32),
        np.tile([0, 1], 12), list(np.repeat(["a", "b", "c"], 8)),
    )  # fmt: skip
    settings = RunSettings(
        dataset="x", split=Split(0, 0, ("a",), ("b",), ("c",)), optimizer=optimizer,
        batch_size=4, max_epochs=6, weight_decay=0.1, lr=0.01, hold_redundant=True,
    )  # fmt: skip
    shape = InputShape.unnamed(8, samples=128, rate_hz=64, classes=2)
    make = partial(build_backbone, backbone, shape)
    with isolated(settings.seed("weights"), torch.device("cpu")):
        first = tensors(make())
    seen = []

    def watch(_, model):
        seen.append(tensors(model))

    alone = train(settings, windows, make, watch)
    bundled = []

    def ended(_, outcome, __):
        bundled.append(outcome)

    train_bundle([settings] * 2, windows, make, ended, watch)
    for last in (seen[len(alone.history) - 1], *seen[-2:]):
        assert [name for name in first if torch.equal(first[name], last[name])] == EEGNET
    for record in bundled:
        assert [e.train_loss for e in record.history] == [e.train_loss for e in alone.history]


def test_held_tensors_keep_their_first_values_in_a_replay(tmp_path):
    """The shape is one at which the scale's gradient was once taken for one that counts."""
    study = parse_study(
        {
            "name": "x",
            "datasets": [{"name": "synthetic", "options": {"n_subjects": 4, "trials": 8}}],
            "backbones": ["eegnet_authors"],
            "optimizers": ["adam"],
            "training": {"max_epochs": 2, "weight_decay": 0.1, "hold_redundant": True},
        }
    )
    chosen, seen = find_run(study, optimizer="adam", cache_dir=tmp_path), []
    replay(chosen, watch=lambda _, model: seen.append(tensors(model)))
    first = tensors(chosen.initial_model())
    assert [name for name in first if torch.equal(first[name], seen[-1][name])] == EEGNET
