"""`compare` and the object it returns, on tiny data in memory."""

import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import mne
import numpy as np
import pytest
import torch

from afor.bench import compare, open_results, parse_study
from afor.bench.common.errors import ConfigError, DataError
from afor.bench.execution.forecast import StepTimes
from afor.bench.execution.sources import open_sources
from afor.bench.notebook.compare import _methods
from afor.bench.notebook.session import Sizes, with_sizes
from afor.bench.notebook.trials import as_trials, write_trials
from afor.bench.store.database import open_store

RATE = 64
ROOT = Path(__file__).parents[3]


def arrays(people=4, trials=6, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.tile([0, 1], people * trials // 2)
    subjects = np.repeat([f"p{i}" for i in range(people)], trials)
    data = rng.normal(0, 10, (people * trials, 3, RATE)).astype(np.float32)
    return data, labels, subjects


def epochs_of(data, labels):
    info = mne.create_info(["C3", "Cz", "C4"], RATE, "eeg")
    events = np.column_stack([np.arange(len(data)) * 99, np.zeros(len(data), int), labels])
    return mne.EpochsArray(data * 1e-6, info, events, event_id={"a": 0, "b": 1}, verbose="error")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def run(folder):
    """Compare once; the tests look at the results."""

    def call(**changes):
        options = {
            "rate_hz": RATE, "max_epochs": 1, "batch_size": 8, "workers": 1, "progress": False,
            "lr": 1e-3,
            "store": folder / "x.db", "cache_dir": folder / "cache",
        }  # fmt: skip
        return compare(*arrays(), **{**options, **changes})

    return call


@pytest.fixture(scope="module")
def results(run):
    return run()


def test_every_person_is_tested_once_by_every_optimizer(results):
    rows = results.to_rows()
    assert len(rows) == 2 * 4
    assert {row["method"] for row in rows} == {"adamw", "afor"}
    assert sorted(row["test_subjects"] for row in rows if row["method"] == "afor") == [
        "p0", "p1", "p2", "p3",
    ]  # fmt: skip
    assert results.baseline == "adamw"


def test_the_same_call_trains_nothing_again_and_a_longer_one_only_the_rest(run, results, capsys):
    keys = {row["key"] for row in results.to_rows()}
    again = run(progress=True)
    assert {row["key"] for row in again.to_rows()} == keys
    assert "notebook: 8 of 8 runs" in capsys.readouterr().err


def test_a_control_is_the_baseline_under_another_seed(run, folder):
    rows = run(control=True, store=folder / "with-control.db", name="with-control").to_rows()
    assert {row["method"] for row in rows} == {"adamw", "afor", "adamw_seed_1"}


def test_a_result_stays_what_it_was_when_the_next_one_takes_its_name(run, results, folder):
    before = results.to_rows()
    data, labels, subjects = arrays(seed=1)
    options = {"rate_hz": RATE, "max_epochs": 1, "batch_size": 8, "workers": 1, "progress": False}
    paths = {"store": folder / "taken.db", "cache_dir": folder / "cache"}
    first = run(store=folder / "taken.db")  # nothing of it has been looked at
    other = compare(data, labels, subjects, **options, **paths)
    losses_of = [
        [row["nll"] for row in rows] for rows in (before, first.to_rows(), other.to_rows())
    ]
    assert losses_of[0] == losses_of[1] != losses_of[2]
    losses = first.results.training.curves["notebook", "eegnet", "afor"]
    taken = other.results.training.curves["notebook", "eegnet", "afor"]
    assert [run.train.tolist() for run in losses] != [run.train.tolist() for run in taken]
    assert len(losses) == 4


@pytest.mark.parametrize("kind", ["gain", "folds"])
def test_a_figure_is_an_image_in_a_fresh_kernel(results, kind):
    shown = getattr(results, f"plot_{kind}")()
    assert shown._repr_png_().startswith(b"\x89PNG")
    assert shown.content.axes


def test_a_misspelt_metric_is_answered_with_those_that_exist(results):
    store = results.results.paths[0]
    with pytest.raises(ConfigError, match=r"'accurac_y'. Did you mean 'accuracy'\? Here: accuracy"):
        open_results(store, metric="accurac_y")
    assert open_results(store, metric="kappa").metric == "kappa"


NETWORK = """
import torch
from torch import nn

WIDTH = 4
x = object()  # of the notebook; the x below is another one


def pooled(x):
    return x.abs().mean(-1)


class Net(nn.Module):
    def __init__(self, shape, width=WIDTH):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(shape.channels, width), nn.ReLU(), nn.Linear(width, shape.classes)
        )

    def forward(self, x):
        return self.layers(pooled(torch.flatten(x, 1, -2)))
"""


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """Define the network as a notebook does: in `__main__`."""
    file = tmp_path / "cell.py"
    file.write_text(NETWORK)
    main = ModuleType("__main__")
    main.__file__ = str(file)
    exec(compile(NETWORK, str(file), "exec"), vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


@pytest.mark.usefixtures("train_here")
def test_classes_instances_and_lists_of_networks_are_compared(run, notebook, tmp_path):
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    results = run(
        optimizers=[torch.optim.AdamW, sgd, partial(torch.optim.SGD, nesterov=False)],
        backbone=["eegnet", notebook.Net, partial(notebook.Net, width=8)],
        store=tmp_path / "x.db",
    )
    tasks = [backbone for _, backbone in results.results.tasks]
    assert sorted(tasks) == ["Net", "Net-3", "eegnet"]
    assert results.results.methods == ["adamw", "SGD", "SGD-3"]
    assert len(results.to_rows()) == 3 * 3 * 4
    assert len(results.verdict().splitlines()) >= 3
    study = parse_study(next(iter(results.results.study_texts.values())))
    assert [entry.settings.get("momentum") for entry in study.optimizers] == [None, 0.9, None]
    assert study.optimizers[1].use == "torch.optim.sgd:SGD"


def test_what_a_worker_cannot_build_again_is_refused(run):
    class Local(torch.nn.Module):
        pass

    for backbone, words in (
        (torch.nn.Linear(1, 1), "builds it anew"),
        (Local, "not inside another function"),
        (lambda _: Local(), "<lambda> has no name of its own"),
        (partial(Local, 3), "settings by name"),
    ):
        with pytest.raises(ConfigError, match=words):
            run(backbone=backbone)


def test_a_notebook_shows_verdict_and_table(results):
    html = results._repr_html_()
    assert results.verdict().split(":")[0] in html
    assert html.count("<tr") >= 3
    assert "<script" not in html
    assert "AFOR" in str(results)


def test_frame_figures_and_report_come_from_the_same_runs(results, folder, monkeypatch):
    pytest.importorskip("pandas")
    frame = results.to_frame()
    assert len(frame) == 8
    mean = frame[frame.method == "afor"].accuracy.mean()
    assert f"{100 * mean:.2f}" in results._repr_html_()
    assert results.plot_gain().axes
    assert len(results.plot_folds().axes[0].get_yticks()) == 4
    page = results.report(folder / "report.html")
    assert "AFOR" in page.read_text("utf-8")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        results.to_frame()


def test_a_finished_store_opens_as_the_same_object(results):
    opened = open_results(results.results.paths[0])
    assert opened.baseline == "adamw"
    assert opened.to_rows() == results.to_rows()
    assert opened.verdict() == results.verdict()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate_hz": None}, "give rate_hz"),
        ({"baseline": "adam"}, "baseline 'adam' is not one of the methods adamw, afor"),
        ({"optimizers": ["adamw", "afro"]}, 'Did you mean "afor"'),
        ({"max_epochs": 0}, "max_epochs"),
        ({"metric": "accurac_y"}, "'accurac_y'. Did you mean 'accuracy'"),
        ({"minutes": "5"}, "minutes='5': expected a number above 0"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(run, changes, words):
    with pytest.raises(ConfigError, match=words):
        run(**changes)


def test_epochs_raw_dictionaries_and_data_sets_give_the_same_trials():
    data, labels, subjects = arrays()
    expected = as_trials(data, labels, subjects, rate_hz=RATE)
    epochs = epochs_of(data, labels)
    from_epochs = as_trials(epochs, subjects=subjects)
    np.testing.assert_allclose(from_epochs.trials, expected.trials, rtol=1e-4)
    assert from_epochs.labels.tolist() == [["a", "b"][label] for label in labels]
    assert from_epochs.channel_names == ("C3", "Cz", "C4")

    of_person = {p: epochs[np.flatnonzero(subjects == p)] for p in np.unique(subjects)}
    by_person = as_trials(of_person)
    assert by_person.subjects.tolist() == subjects.tolist()
    np.testing.assert_array_equal(by_person.trials, from_epochs.trials)

    pairs = [(x, y) for x, y in zip(data, labels, strict=True)]  # as torch's data sets give them
    from_pairs = as_trials(pairs, subjects=subjects, rate_hz=RATE)
    np.testing.assert_array_equal(from_pairs.trials, expected.trials)

    raw = mne.io.RawArray(
        np.concatenate(list(data[:6]), axis=1) * 1e-6,
        mne.create_info(["C3", "Cz", "C4"], RATE, "eeg"),
        verbose="error",
    )
    raw.set_annotations(mne.Annotations(np.arange(6), 1.0, ["a", "b"] * 3))
    from_raw = as_trials({"p0": raw})
    np.testing.assert_allclose(from_raw.trials, data[:6], rtol=1e-4)
    assert from_raw.labels.tolist() == ["a", "b"] * 3


def test_metadata_and_descriptions_name_the_subjects():
    pd = pytest.importorskip("pandas")
    data, labels, subjects = arrays()
    epochs = epochs_of(data, labels)
    epochs.metadata = pd.DataFrame({"person": subjects})
    assert as_trials(epochs, subjects="person").subjects.tolist() == subjects.tolist()
    with pytest.raises(ConfigError, match="no metadata column 'who'"):
        as_trials(epochs, subjects="who")

    class Windows(list):  # of braindecode: items (x, y, where), a description, MNE's info
        def __init__(self, person):
            rows = np.flatnonzero(subjects == person)
            super().__init__((data[r], labels[r], [0, 0, 0]) for r in rows)
            self.description = pd.Series({"subject": person})
            self.windows = epochs

    class Concatenated:
        datasets = tuple(Windows(person) for person in np.unique(subjects))

    found = as_trials(Concatenated())
    assert found.subjects.tolist() == subjects.tolist()
    assert (found.channel_names, found.rate_hz) == (("C3", "Cz", "C4"), RATE)


def test_what_does_not_fit_is_refused():
    data, labels, subjects = arrays()
    with pytest.raises(ConfigError, match="Give subjects"):
        as_trials(data, labels, rate_hz=RATE)
    with pytest.raises(ConfigError, match="give labels"):
        as_trials(data, None, subjects, rate_hz=RATE)
    with pytest.raises(DataError, match="with 3 labels"):
        as_trials(data, labels[:3], subjects, rate_hz=RATE)
    with pytest.raises(DataError, match="2 channel names for 3 channels"):
        as_trials(data, labels, subjects, rate_hz=RATE, channel_names=["C3", "C4"])
    both = {"a": data[:2], "b": data[:2, :2]}
    with pytest.raises(DataError, match="subject b has 2 channels"):
        as_trials(both, {"a": [0, 1], "b": [0, 1]}, rate_hz=RATE)


def test_trials_are_written_once_and_by_content(tmp_path):
    data, labels, subjects = arrays()
    trials = as_trials(data, labels, subjects, rate_hz=RATE)
    folder = write_trials(trials, tmp_path)
    stamp = (folder / "p0.npz").stat().st_mtime_ns
    assert write_trials(trials, tmp_path) == folder
    assert (folder / "p0.npz").stat().st_mtime_ns == stamp
    other = as_trials(data, 1 - labels, subjects, rate_hz=RATE)
    assert write_trials(other, tmp_path) != folder
    with pytest.raises(ConfigError, match="cannot be the name of a file"):
        write_trials(as_trials(data, labels, ["../x"] * len(data), rate_hz=RATE), tmp_path)


def test_a_study_may_be_a_dictionary():
    parts = {"datasets": ["synthetic"], "backbones": ["eegnet"], "optimizers": ["afor"]}
    assert parse_study({"name": "x", **parts}).datasets[0].use == "synthetic"
    with pytest.raises(ConfigError, match=r'unknown key "sede". Did you mean "seed"'):
        parse_study({"name": "x", "sede": 1, **parts})


@pytest.mark.usefixtures("train_here")
def test_the_gallery_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    notebook = json.loads((ROOT / "docs" / "gallery" / "compare.ipynb").read_text("utf-8"))
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)  # results are not stored twice
    names = {"__name__": "__main__"}
    for cell in cells:
        code = "".join(cell["source"])
        # As on the page, but with three people, one epoch and one worker.
        code = code.replace("# quick: ", "")
        exec(compile(code, "compare.ipynb", "exec"), names)
    assert len(names["results"].to_rows()) == 2 * 3
    assert len(names["choices"].to_rows()) == 6 * 3  # three networks, two schedules
    assert Path("report.html").is_file()


def test_networks_and_schedules_are_compared_with_each_other(tmp_path):
    """Two networks and two schedules, end to end: the verdicts are between methods."""
    results = compare(
        "synthetic",
        options={"n_subjects": 3, "trials": 8},
        methods=[
            {"name": "eegnet", "optimizer": "adam", "backbone": "eegnet"},
            {
                "name": "eegnet_cosine",
                "optimizer": "adam",
                "backbone": "eegnet",
                "training": {"schedule": "cosine"},
            },
            {"name": "hslt", "optimizer": torch.optim.Adam, "backbone": "hslt"},
        ],
        max_epochs=1,
        store=tmp_path / "methods.db",
        cache_dir=tmp_path,
        workers=1,
        progress=False,
    )
    rows = results.to_rows()
    assert {row["method"] for row in rows} == {"eegnet", "eegnet_cosine", "hslt"}
    assert {row["backbone"] for row in rows} == {"by_method"}
    assert len(rows) == 9
    assert "network by method, 3 folds" in repr(results.table("main"))


def test_what_is_compared_is_named_once(tmp_path):
    with pytest.raises(ConfigError, match="methods name their optimizers"):
        compare("synthetic", optimizers=["adam"], methods=["adam"], cache_dir=tmp_path)


def test_the_networks_of_compare_are_methods_with_every_optimizer(tmp_path):
    entries = _methods(None, ["eegnet", "hslt"], None, tmp_path)
    assert [(e["name"], e["use"], e["backbone"]["name"]) for e in entries] == [
        ("eegnet", "adamw", "eegnet"), ("hslt", "adamw", "hslt")
    ]  # fmt: skip
    classes = [partial(torch.optim.Adam, betas=(0.9, 0.99)), {"name": "adam_b", "use": "adam"}]
    assert _methods(None, None, classes, tmp_path) == [
        {"name": "adam", "settings": {"betas": [0.9, 0.99]}}, {"name": "adam_b", "use": "adam"}
    ]  # fmt: skip
    names = [e["name"] for e in _methods(["adam", "afor"], ["eegnet", "hslt"], None, tmp_path)]
    assert names == ["eegnet_adam", "eegnet_afor", "hslt_adam", "hslt_afor"]


def test_without_a_rate_three_are_tried_with_the_baseline_first(run, folder, capsys):
    path = folder / "searched.db"
    results = run(lr=None, store=path, progress=True)
    out = capsys.readouterr().out
    assert "searched first: adamw at 0.001, 0.003, 0.01 on 2 folds, 6 runs, about" in out
    assert "lr=RATE skips it" in out
    with open_store(path) as store:
        assert {(c.entry, c.rate) for c in store.runs() if c.is_search} == {
            ("adamw", 1e-3), ("adamw", 3e-3), ("adamw", 1e-2),
        }  # fmt: skip
        (rate,) = {cell.rate for cell in store.runs("notebook")}
    assert f"learning rate of notebook × eegnet × adamw: {rate:g}" in out
    assert len(results.to_rows()) == 2 * 4
    assert "lr_search" not in out
    # These trials are noise: another rate is not the advice.
    assert "of which none was better than guessing on the validation subjects" in out
    assert "of those tried" not in out


class FakeTimes:
    """Every step takes a hundredth of a second, evaluation nothing."""

    def times(self, *_):
        return StepTimes(0.01, 0.0)


@pytest.fixture(scope="module")
def sizes(folder):
    options = {"n_subjects": 12, "trials": 16, "channels": ["C3", "C4"]}
    study = parse_study(
        {
            "name": "x",
            "datasets": [{"name": "synthetic", "options": options}],
            "backbones": ["eegnet"],
            "optimizers": ["adamw", "afor"],
            "training": {"max_epochs": 60, "patience": 60, "batch_size": 32},
            "lr_search": [1e-3, 1e-2],
        }
    )
    return Sizes(study, open_sources(study, folder / "cache"), FakeTimes(), workers=1)


def test_a_limited_time_gives_epochs_before_folds_and_folds_before_repetitions(sizes):
    def chosen(seconds):
        study = sizes.largest(seconds)
        return study.training.max_epochs, study.datasets[0].folds, study.protocol.repetitions

    assert chosen(1) == (3, 6, 1)  # the least, though it does not fit
    epochs = [chosen(seconds)[0] for seconds in (1, 10, 20, 40, 100)]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 2
    full = sizes.seconds(with_sizes(sizes.study, repetitions=1))
    assert chosen(full + 1) == (60, 12, 1)
    some = chosen(0.8 * full)
    assert (some[0], some[2]) == (60, 1)
    assert 6 < some[1] < 12
    for seconds in (20, 40, 100):
        assert sizes.seconds(sizes.largest(seconds)) <= seconds


def test_the_end_says_what_more_time_would_change(sizes):
    text = sizes.outcome(sizes.largest(1), None, 61)
    assert "up to 3 epochs, 6 folds, 1 repetition." in text
    assert "More time would give up to 60 epochs, 12 folds, 5 repetitions: about" in text
    full = with_sizes(sizes.study, repetitions=5)
    assert "would change nothing" in sizes.outcome(full, None, 1)


def test_minutes_are_kept_and_the_result_says_what_was_done(run, folder):
    results = run(lr=None, minutes=0.5, max_epochs=4, store=folder / "timed.db")
    assert results.spent.startswith("In ")
    assert "learning rate of notebook × eegnet × adamw" in results.spent
    assert results.spent in str(results)
    assert "More time would" in results._repr_html_()
    with pytest.raises(ConfigError, match="minutes=0: expected a number above 0"):
        run(minutes=0)
