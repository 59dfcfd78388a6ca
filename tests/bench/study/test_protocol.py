"""What a comparison assumes of its runs travels with them, and decides what may be compared."""

import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.data.loading import open_windows
from afor.bench.execution.runner import run_study
from afor.bench.stats.groups import collect_conditions, comparability_notes
from afor.bench.store.database import open_store
from afor.bench.store.files import export_rows, load_results, to_csv, write_export, write_results
from afor.bench.store.learning_rates import SearchedRates
from afor.bench.study.plan import make_plan
from afor.bench.study.protocol import differences, protocol_text, read_protocol
from afor.bench.study.schema import parse_study

OPTIONS = {"n_subjects": 3, "trials": 4, "rate_hz": 64.0, "channels": ["C3", "C4"]}


@pytest.fixture(scope="module")
def planned(tmp_path_factory, small_study):
    """Return a function that plans a study of three synthetic subjects."""
    cache = tmp_path_factory.mktemp("cache")

    def plan(find_rate=None, options=None, **changes):
        study = parse_study(small_study(options={**OPTIONS, **(options or {})}, **changes))
        entry = study.datasets[0]
        windows = open_windows(entry.use, options=entry.options, cache_dir=cache)
        return make_plan(study, {entry.name: windows}, find_rate).runs

    return plan


def test_a_protocol_is_everything_but_the_optimizer_and_the_defaults(planned):
    first, second = planned(training={"max_epochs": 3, "batch_size": 64})[:2]
    assert (first.method, second.method) == ("adamw", "afor")
    assert first.protocol == second.protocol
    assert first.protocol["max_epochs"] == "3"
    assert first.protocol["data_kind"] == "synthetic"
    assert first.protocol["lr"] == "0.001"
    assert first.spec["data"]["fingerprint"].startswith(first.protocol["data.fingerprint"])
    for default in ("patience", "seed", "threads", "device", "weight_decay", "batch_size"):
        assert default not in first.protocol
    assert read_protocol(protocol_text(first.protocol)) == first.protocol


def test_what_an_entry_sets_for_itself_belongs_to_the_method(planned):
    own = {"name": "afor", "lr": 0.01, "weight_decay": 0.1, "clip_norm": 1.0, "seed": 7}
    runs = planned(optimizers=["adamw", own], training={"clip_norm": 5.0})
    theirs, ours = runs[0].protocol, runs[1].protocol
    assert [ours[key] for key in ("lr", "weight_decay", "clip_norm", "seed")] == ["own"] * 4
    assert list(differences([theirs, ours])) == []


def test_a_rate_of_the_study_belongs_to_the_protocol_and_a_searched_one_to_the_method(planned):
    (slow, *_), (fast, *_) = planned(), planned(training={"lr": 0.01})
    (found,) = differences([slow.protocol, fast.protocol])
    assert (found.key, found.values) == ("lr", ("0.001", "0.01"))
    rates = {("synthetic", "eegnet", name): rate for name, rate in (("adamw", 0.1), ("afor", 0.2))}
    assert planned(SearchedRates(rates))[1].protocol["lr"] == "searched"
    shared = SearchedRates({("synthetic", "eegnet", "adamw"): 0.1})
    assert planned(shared)[1].protocol["lr"] == "0.1"


def test_a_setting_of_the_data_is_named_before_their_fingerprint(planned):
    (one, *_), (other, *_) = planned(), planned(options={"seed": 7})
    keys = [found.key for found in differences([one.protocol, other.protocol])]
    assert keys == ["data.seed", "data.fingerprint"]


@pytest.fixture
def stores(tmp_path, monkeypatch, small_study, inline_engine):
    """Train Adam, and AFOR for longer or on other data, each in a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))

    def train(name, optimizer, *, epochs=1, options=None, **training):
        text = small_study(
            name=name,
            optimizers=[optimizer],
            training={"max_epochs": epochs, **training},
            options={**OPTIONS, **(options or {})},
        )
        run_study(parse_study(text), text, tmp_path / f"{name}.db", inline_engine)

    train("d", "adam")
    train("e", "afor", epochs=3, lr=0.01)
    train("f", "afor", options={"seed": 7, "effect": 3.0})
    train("g", "afor")
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    "command", [("judge",), ("table", "main"), ("figure", "gain"), ("report",)]
)
def test_runs_of_two_trainings_are_not_compared(stores, command):
    result = invoke(*command, "d.db", "e.db")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == (
        "synthetic × eegnet, fold 0, repetition 0: the runs cannot be compared, lr is 0.001 for "
        "adam "
        "(study d) and 0.01 for afor (study e); choose runs of one protocol, or compare them on "
        "purpose with --allow-different lr."
    )


def test_runs_on_two_data_sets_of_one_name_are_not_compared(stores):
    result = invoke("table", "main", "d.db", "f.db")
    assert isinstance(result.exception, ConfigError)
    assert "data.effect is" in str(result.exception)
    allowed = ["--allow-different", "data", "--allow-different", "split"]
    assert invoke("table", "main", "d.db", "f.db", *allowed).exit_code == 0


def test_what_is_compared_on_purpose_is_said(stores):
    runs, expected = load_results([stores / "d.db", stores / "e.db"])
    with pytest.raises(ConfigError, match="--allow-different max_epochs"):
        collect_conditions(runs, expected, allow_different=["lr"])
    conditions = collect_conditions(runs, expected, allow_different=["lr", "max_epochs"])
    assert comparability_notes(conditions) == [
        "synthetic: computed subjects, not recordings of people.",
        "synthetic × eegnet: compared although lr is 0.001 for adam (study d) and 0.01 for afor "
        "(study e).",
        "synthetic × eegnet: compared although max_epochs is 1 for adam (study d) and 3 for afor "
        "(study e).",
    ]
    assert invoke("judge", "d.db", "g.db").exit_code == 0


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_file_carries_the_protocol_of_its_runs(stores, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    file = stores / f"runs.{suffix}"
    with open_store(stores / "d.db") as store:
        write_export(export_rows(store), file)
        stored = store.results()
    (run, *_), _ = load_results([file])
    assert run.protocol == stored[0].protocol
    assert run.data_kind == stored[0].data_kind == "synthetic"
    if suffix == "json":
        assert json.loads(file.read_text())["runs"][0]["data_kind"] == "synthetic"
    if suffix != "parquet":
        write_results(file, stored, [])
        assert load_results([file])[0][0].protocol == stored[0].protocol
    assert "lr is 0.001 for adam" in str(invoke("judge", str(file), "e.db").exception)


def test_runs_without_a_protocol_are_compared_within_their_file_alone(stores):
    for name in "dg":
        with open_store(stores / f"{name}.db") as store:
            rows = export_rows(store)
        lines = [
            {k: v for k, v in row.items() if k not in ("protocol", "data_kind")} for row in rows
        ]
        (stores / f"{name}.csv").write_text(to_csv(lines))
    (stores / "both.csv").write_text(
        (stores / "d.csv").read_text() + (stores / "g.csv").read_text().partition("\n")[2]
    )
    runs, expected = load_results([stores / "both.csv"])
    (note,) = comparability_notes(collect_conditions(runs, expected))
    assert note.startswith("The protocol of the runs is not recorded in both.csv")
    for other in ("g.csv", "g.db"):
        message = str(invoke("judge", "d.csv", other).exception)
        assert "--allow-different protocol" in message
        assert "not recorded in d.csv for adam" in message
    assert invoke("judge", "d.csv", "g.db", "--allow-different", "protocol").exit_code == 0


def test_replicates_are_compared_as_controls(planned):
    runs = planned(optimizers=["afor", {"name": "afor_seed_1", "use": "afor", "seed": 1}])
    assert list(differences([runs[0].protocol, runs[1].protocol])) == []
    (other, *_) = planned(seed=1)
    assert next(differences([runs[0].protocol, other.protocol])).key == "seed"


def test_studies_of_one_name_are_not_merged(tmp_path, monkeypatch, small_study, inline_engine):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    for file, optimizers, epochs in (("a", ["adam", "afor"], 1), ("b", ["afor", "adamw"], 3)):
        text = small_study(
            name="small", optimizers=optimizers, training={"max_epochs": epochs}, options=OPTIONS
        )
        run_study(parse_study(text), text, tmp_path / f"{file}.db", inline_engine)
    result = invoke("store", "merge", "m.db", "a.db", "b.db")
    assert isinstance(result.exception, StoreError)
    assert str(result.exception).startswith(
        "a.db and b.db hold different studies of the name small: training.max_epochs is 1 in the "
        "first and 3 in the second."
    )
    assert not (tmp_path / "m.db").exists()
    assert invoke("store", "merge", "m.db", "a.db").exit_code == 0
    assert isinstance(invoke("store", "merge", "m.db", "b.db").exception, StoreError)
    with open_store(tmp_path / "m.db") as store:
        assert len(store.runs()) == 6


def test_a_changed_file_is_not_taken_for_the_study_that_ran(tmp_path, monkeypatch, small_study):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mine.toml"
    texts = [small_study(optimizers=["adam", "afor"], training={"max_epochs": n}, options=OPTIONS)
             for n in (1, 2)]  # fmt: skip
    file.write_text(texts[0])
    assert invoke("run", "mine.toml", "--jobs", "1").exit_code == 0
    assert "is not the study" not in invoke("judge", "mine.toml").stderr
    file.write_text(texts[1])
    for words in (["judge"], ["table", "main"], ["export"]):
        result = invoke(*words, "mine.toml")
        assert result.exit_code == 0
        assert (
            "mine.toml is not the study that ran last as tiny: training.max_epochs is 2 in the "
            "file and 1 in results/tiny.db, whose runs are shown."
        ) in result.stderr


def test_what_the_data_are_is_said_by_status_and_show_and_while_it_runs(stores):
    said = " ".join(invoke("status", "d.db").stdout.split())
    assert "synthetic computed subjects, not recordings of people" in said
    shown = json.loads(invoke("status", "d.db", "--json").stdout)
    assert shown["studies"][0]["data"] == {"synthetic": "synthetic"}
    with open_store(stores / "d.db") as store:
        key = store.runs()[0].key
    assert "data       synthetic" in invoke("store", "show", "d.db", key[:12]).stdout


def test_a_search_is_stored_with_its_own_study(tiny):
    tiny.write(optimizers=("a", "b"), subjects=3, repetitions=1)
    tiny.call("--lr", "each")
    with open_store(tiny.store) as store:
        search = parse_study(store.studies()["tiny-lr-search"])
    assert search.name == "tiny-lr-search"
    assert search.search is not None
    assert search.protocol.only_folds == [0]
