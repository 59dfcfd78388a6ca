"""Whatever a study says, reading and planning it works or ends in one sentence."""

import json
from dataclasses import asdict
from datetime import date
from typing import get_args

import numpy as np
import pytest

from afor.bench.common.errors import AforError, ConfigError, DataError
from afor.bench.common.files import check_output, write_output
from afor.bench.data.catalog import NAMES, get_dataset
from afor.bench.data.datasets.synthetic import subject_names
from afor.bench.data.loading import open_windows
from afor.bench.data.splits import make_splits
from afor.bench.execution.sources import open_sources
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import BACKBONES, check_backbone
from afor.bench.optimizers.build import accepted_settings, check_optimizer
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import Protocol, Study, check_study, load_study, parse_study
from afor.bench.study.toml_io import toml_text
from afor.bench.training.execute import execute
from afor.bench.training.record import decode, encode
from afor.bench.training.run_spec import Training

SHAPE = InputShape(("C3", "Cz", "C4", "O1"), samples=200, rate_hz=128, classes=2)
MANY = InputShape.unnamed(22, samples=200, rate_hz=128, classes=2)
VALUES = [
    *("", "x", "none", "\0", True, False, 0, 1, -1, -3, 2**40, 10**30, 10**5000),
    *(0.0, 0.5, -0.5, 1e30, 1e300, -1e300, 5e-324, float("nan"), float("inf"), -float("inf")),
    *([], [[]], [1, 2], [0.9, 0.99], [2, 1], ["C3", "C4"], [["C3"], 1], [True], [[8, 8]]),
    *({}, {"a": 1}, {"a": {"b": [date(2020, 1, 2)]}}, date(2020, 1, 2)),
]
BASE = {
    "name": "x",
    "datasets": [{"name": "synthetic", "options": {"n_subjects": 3, "trials": 4}}],
    "backbones": [{"name": "eegnet"}],
    "optimizers": [{"name": "adam"}],
}


def _with(path, value):
    content = json.loads(json.dumps(BASE))
    here = content
    for part in path[:-1]:
        here = here[part] if isinstance(here, list) else here.setdefault(part, {})
    here[path[-1]] = value
    return content


def _try(function):
    """Return the result and no sentence, or None and the sentence."""
    try:
        return function(), ""
    except AforError as error:
        return None, str(error)


def _fields():
    yield from ([name] for name in Study.model_fields)
    yield from (["training", name] for name in Training.model_fields)
    yield from (["protocol", name] for name in Protocol.model_fields)
    yield ["search", "grid"]
    for kind in ("datasets", "backbones", "optimizers"):
        entry = type(getattr(load_study("demo"), kind)[0])
        yield from ([kind, 0, name] for name in entry.model_fields)


@pytest.mark.parametrize("path", list(_fields()), ids=lambda path: ".".join(map(str, path)))
def test_any_value_of_any_key_is_read_or_refused_in_a_sentence(path):
    for value in VALUES:
        study, sentence = _try(lambda: check_study(_with(path, value), "study"))  # noqa: B023
        if study is None:
            assert sentence.startswith("study")
            assert len(sentence) < 1000
        else:
            json.dumps(study.model_dump(), allow_nan=False)


@pytest.mark.parametrize("name", BACKBONES)
def test_any_setting_of_a_backbone_is_built_or_refused(name):
    import inspect

    import torch

    from afor.bench.models.registry import build_backbone

    settings = [p for p in inspect.signature(BACKBONES[name]).parameters if p != "shape"]
    built = 0
    # The authors' networks take the montages of the paper alone.
    shape = MANY if name.endswith("_authors") else SHAPE
    for setting in settings:
        for value in VALUES:
            try:
                check_backbone(name, {setting: value})
                with torch.device("meta"):
                    model = build_backbone(name, shape, **{setting: value})
            except AforError:
                continue
            built += 1
            assert sum(p.numel() for p in model.parameters()) < 10**9
    assert built


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_setting_of_an_optimizer_is_taken_or_refused(name):
    taken = 0
    for parameter in accepted_settings(name):
        for value in VALUES:
            try:
                check_optimizer(name, {parameter.name: value})
            except ConfigError:
                continue
            taken += 1
            choices = get_args(parameter.annotation)
            assert value in choices or not isinstance(value, str | dict) or value == {}
    assert taken


@pytest.mark.parametrize("name", NAMES)
def test_any_option_of_a_data_set_is_taken_or_refused(name):
    dataset = get_dataset(name)
    for option in dataset.settings.model_fields:
        for value in VALUES:
            settings, sentence = _try(lambda: dataset.parse({option: value}))  # noqa: B023
            assert len(sentence) < 1000
            if settings is None:
                continue
            json.dumps(settings.trial_settings(), allow_nan=False)
            if name == "synthetic":
                assert len(subject_names(settings)) <= 1000


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["threads"], 10**30, "64 bits"),
        (["threads"], 10**9, "less than or equal to 1024"),
        (["protocol", "repetitions"], 10**9, "less than or equal to 1000"),
        (["protocol", "only_folds"], [], "at least 1 item"),
        (["protocol", "only_repetitions"], [], "at least 1 item"),
        (["datasets", 0, "subjects"], [], "at least 1 item"),
        (["backbones", 0, "settings"], {"dropout": float("nan")}, "settings.dropout.*finite"),
        (["backbones", 0, "settings"], {"dropout": date(2020, 1, 2)}, "settings.dropout.*a date"),
        (["datasets", 0, "root"], "a\0b", "NUL"),
        (["description"], "\udc80", "UTF-8"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_key(path, value, message):
    with pytest.raises(ConfigError, match=message):
        check_study(_with(path, value), "study")


def test_the_line_of_a_date_is_named():
    text = toml_text(BASE) + "settings = { lr = 2020-01-02 }\n"
    line = text.count("\n")  # the last
    with pytest.raises(ConfigError, match=rf"study, line {line}: optimizers.1.settings.lr"):
        parse_study(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("a = " + "[" * 50 + "]" * 50, "at most 20 deep"),
        ("seed = " + "9" * 6000, "not valid TOML"),
    ],
)
def test_toml_that_python_cannot_read_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_study(text)


def test_a_study_whose_name_is_too_long_for_the_system_is_not_found():
    for name in ("a" * 5000, "a" * 5000 + ".toml", "a\0b"):
        with pytest.raises(ConfigError, match=r"cannot be read|There is no study"):
            load_study(name)


@pytest.mark.parametrize("settings", [{"depth": 0}, {"temporal_filters": -3}, {"depth": True}])
def test_a_plan_refuses_a_network_that_cannot_be_built(settings, cache_dir):
    study = check_study(_with(["backbones", 0, "settings"], settings), "study")
    options = study.datasets[0].options
    source = open_windows("synthetic", options=options, cache_dir=cache_dir)
    with pytest.raises(ConfigError, match=next(iter(settings))):
        make_plan(study, {"synthetic": source})


def test_a_plan_of_too_many_runs_is_refused_before_it_is_listed(cache_dir, monkeypatch):
    monkeypatch.setattr("afor.bench.study.plan.MAX_RUNS", 14)
    study = check_study(BASE, "study")
    source = open_windows("synthetic", options=study.datasets[0].options, cache_dir=cache_dir)
    with pytest.raises(ConfigError, match=r"15 runs .* at most 14"):
        make_plan(study, {"synthetic": source})


def test_too_many_splits_are_refused():
    with pytest.raises(ConfigError, match="set folds"):
        make_splits("x", [f"s{i}" for i in range(1000)], repetitions=1000)


def test_a_root_that_is_too_long_for_the_system_is_not_there(cache_dir):
    with pytest.raises(DataError, match="there is no folder aaa"):
        open_windows("deap", "a" * 5000, cache_dir=cache_dir)


def test_a_cache_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=r"cache folder .*file"):
            open_windows("synthetic", options={"n_subjects": 2}, cache_dir=folder)
        monkeypatch.setenv("AFOR_CACHE", str(folder))
        with pytest.raises(ConfigError, match="AFOR_CACHE"):
            open_windows("synthetic", options={"n_subjects": 2})


def test_a_label_of_a_billion_is_refused_without_counting_to_it(tmp_path, cache_dir):
    data = np.random.default_rng(0).normal(size=(2, 2, 8))
    names = ["C3", "C4"]
    np.savez(tmp_path / "a.npz", data=data, labels=[0, 10**9], channel_names=names, rate_hz=128)
    with pytest.raises(DataError, match="the highest 1000000000"):
        open_windows("folder", tmp_path, cache_dir=cache_dir)


@pytest.mark.parametrize("name", ["folder", "file/below.txt", "n" * 300])
def test_an_output_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_output(tmp_path / name, "text")
    if len(name) < 300:
        with pytest.raises(ConfigError, match="cannot be written"):
            check_output(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.fixture
def finished(tiny):
    study = load_study(str(tiny.file))
    plan = make_plan(study, open_sources(study))
    cell = plan.runs[0]
    return execute(cell.key, cell.spec, plan.sources["synthetic"])


CHANGES = {
    "status": ["open", 3, None, "diverged", "failed"],
    "spec": [[], {}, {"split": 3}, {"split": {"test": "s01"}}, None],
    "elapsed_s": ["1", None, []],
    "record": [{}, [], "x", 3, None],
    "record.status": ["diverged", 3],
    "record.history": [None, [3], [{"train_loss": 1}], {}],
    "record.best_epoch": [7, -1, "0", 1.5],
    "record.test": [None, [], {"n": 3}],
    "record.test.n": [0, -1, 10**9, "4"],
    "record.test.accuracy": ["0.5", None, [0.5]],
    "record.test.confusion": [[], [[]], [[1]], [[1, 2], [3]], "x", [[-1, 1], [1, 1]], {}],
    "record.train_class_counts": [[], [1], "x", [1.5, 2, 3, 4]],
    "record.traces": [[], {"a": 3}, {"a": {"b": ["x"]}}],
    "record.unknown": [1],
    "unknown": [1],
    "format": [2, "1", None],
}


@pytest.mark.parametrize("path", CHANGES)
def test_a_malformed_record_is_refused_when_it_is_read(finished, path):
    *tables, last = path.split(".")
    for value in CHANGES[path]:
        content = json.loads(finished)
        here = content
        for table in tables:
            here = here[table]
        here[last] = value
        with pytest.raises(ValueError, match=r"finished run|another format"):
            decode(json.dumps(content))
    assert encode(decode(finished)) == finished


def test_records_that_are_no_json_are_refused(finished):
    for content in (b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, finished[:-1]):
        with pytest.raises(ValueError, match="not a finished run"):
            decode(content)
    assert asdict(decode(finished))["status"] == "done"
