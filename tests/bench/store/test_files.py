import json
import math
from dataclasses import replace

import pytest

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.store.files import load_results, write_results
from afor.bench.study.planned_runs import ExpectedRuns

ROW = '[{"dataset": "d", "backbone": "b", "method": "o", "repetition": 0, %s}]'


@pytest.fixture(scope="module")
def simulated():
    return simulate_results({"adam": 0, "<script>": 0.01}, datasets=["bci2a"], repetitions=2)


def test_a_json_file_gives_back_what_was_written(simulated, tmp_path):
    write_results(tmp_path / "r.json", *simulated)
    assert load_results([tmp_path / "r.json"]) == simulated


def test_a_csv_file_gives_back_the_runs_to_the_last_bit(simulated, tmp_path):
    write_results(tmp_path / "r.csv", *simulated)
    assert load_results([tmp_path / "r.csv"]) == (simulated[0], [])


def test_several_files_add_up_and_studies_can_be_chosen(simulated, tmp_path):
    write_results(tmp_path / "a.json", simulated[0][:5], simulated[1])
    write_results(tmp_path / "b.csv", simulated[0][5:9], [])
    both = [tmp_path / "a.json", tmp_path / "b.csv"]
    assert len(load_results(both)[0]) == 9
    assert len(load_results(both, ["simulated"])[0]) == 9
    with pytest.raises(ConfigError, match="Studies here: simulated"):
        load_results(both, ["paper"])


@pytest.fixture
def store_path(simulated, tmp_path, monkeypatch):
    """Give a path that opens as a store with one study."""

    class Store:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def studies(self):
            return {"simulated": "toml"}

        def results(self, study):
            return simulated[0] if study in (None, "simulated") else []

        def expected(self, study):
            return simulated[1] if study in (None, "simulated") else []

    monkeypatch.setattr("afor.bench.store.files.open_store", lambda _: Store())
    (tmp_path / "study.db").touch()
    return tmp_path / "study.db"


def test_any_other_path_is_opened_as_a_store(simulated, store_path):
    assert load_results([store_path]) == simulated
    assert load_results([store_path], ["simulated"]) == simulated
    with pytest.raises(ConfigError, match=r"no study is called paper.*Studies here: simulated"):
        load_results([store_path], ["paper"])


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere\.db does not exist.*afor run"):
        load_results([tmp_path / "nowhere.db"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.json", "{", "is not a JSON file"),
        ("r.json", '{"runs": 3}', "expected"),
        ("r.json", "[3]", "run 1: expected an object"),
        ("r.json", '[{"dataset": "d"}]', "backbone, method, fold, repetition missing"),
        ("r.json", '{"runs": [], "expected": [{"cell": 1}]}', '"expected"'),
        ("r.csv", "dataset,backbone,method,fold,repetition\nd,b,o,one,0\n", "line 2: fold = 'one'"),
        ("r.csv", "dataset,method\nd,o\n", "line 2: backbone, fold, repetition missing"),
        ("r.json", ROW % '"fold": Infinity', "run 1: fold = inf"),
        ("r.json", ROW % '"fold": -1', "run 1: fold = -1"),
        ("r.json", ROW % '"fold": 1e30', "run 1: fold = 1e.30"),
        ("r.json", ROW % '"fold": {}', "run 1: fold = "),
        ("r.json", ROW % '"fold": 0, "classes": NaN', "run 1: classes = nan"),
        ("r.json", ROW % '"fold": 0, "test_subjects": {}', "run 1: "),
        ("r.json", "[" * 5000, "is not a JSON file"),
        ("r.json", "1" * 6000, "is not a JSON file"),
        (
            "r.json",
            '{"runs": [], "expected": [{"dataset": "d", "backbone": "b", "method": '
            '"o", "folds": Infinity, "repetitions": 1}]}',
            "folds = inf",
        ),
        ("r.csv", "", "no finished run yet"),
        ("r.json", "[]", "no finished run yet"),
    ],
)
def test_a_broken_file_is_answered_with_file_and_place(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=message) as error:
        load_results([tmp_path / name])
    assert name in str(error.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    for name in ("r.csv", "r.json"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81")
        with pytest.raises(StoreError, match="is not a"):
            load_results([tmp_path / name])


def test_columns_without_numbers_are_no_metrics(tmp_path):
    text = "dataset,backbone,method,fold,repetition,accuracy,comment\nd,b,o,0,0,0.5,fine\n"
    (tmp_path / "r.csv").write_text(text)
    results, _ = load_results([tmp_path / "r.csv"])
    assert results[0].metrics == {"accuracy": 0.5}


def test_an_export_says_what_is_done_and_what_is_expected(tmp_path):
    text = "dataset,backbone,method,fold,repetition,status,accuracy\n"
    text += "d,b,o,0,0,done,0.5\nd,b,o,1,0,open,\nd,b,o,2,0,diverged,\n"
    (tmp_path / "r.csv").write_text(text)
    rows = [
        {"dataset": "d", "backbone": "b", "method": "o", "fold": i, "repetition": 0,
         "status": status, "accuracy": value}
        for i, (status, value) in enumerate([("done", 0.5), ("open", None), ("diverged", None)])
    ]  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(rows))
    for name in ("r.csv", "r.json"):
        results, expected = load_results([tmp_path / name])
        assert [(run.fold, run.metrics) for run in results] == [(0, {"accuracy": 0.5})]
        assert expected == [ExpectedRuns("d", "b", "o", folds=3, repetitions=1)]


def test_other_suffixes_are_not_written(simulated, tmp_path):
    with pytest.raises(ConfigError, match=r"\.csv, \.json or \.parquet"):
        write_results(tmp_path / "r.xlsx", *simulated)


def test_the_json_is_plain(simulated, tmp_path):
    write_results(tmp_path / "r.json", *simulated)
    first = json.loads((tmp_path / "r.json").read_text())["runs"][0]
    assert first["test_subjects"] == "s01"
    assert first["accuracy"] == simulated[0][0].metrics["accuracy"]


def test_numbers_that_describe_a_run_are_no_metrics(tmp_path):
    text = "dataset,backbone,method,fold,repetition,lr,epochs,steps,parameters,mine,accuracy\n"
    (tmp_path / "r.csv").write_text(text + "d,b,o,0,0,0.001,5,100,2396,0.25,0.5\n")
    results, _ = load_results([tmp_path / "r.csv"])
    assert results[0].metrics == {"mine": 0.25, "accuracy": 0.5}


def test_a_metric_that_is_not_finite_comes_back_as_nan(tmp_path, simulated):
    run = replace(simulated[0][0], metrics={"accuracy": 0.5, "kappa": float("nan")})
    for name in ("r.json", "r.csv"):
        write_results(tmp_path / name, [run], [])
        (back,), _ = load_results([tmp_path / name])
        assert math.isnan(back.metrics["kappa"])
        assert back.metrics["accuracy"] == 0.5
