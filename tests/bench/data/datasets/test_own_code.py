"""A data set that a function of the user reads, `module:function`."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.loading import open_windows
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.runner import run_study
from afor.bench.study.named_code import (
    names_in_spec,
    names_in_study,
    refuse_stored_code,
    with_trusted_readers,
)
from afor.bench.study.overrides import Overrides, overridden
from afor.bench.study.schema import parse_study

CODE = """
from pathlib import Path
import numpy as np
from afor.bench import Recording

def read(root: Path, subject: str, scale: float = 1.0) -> Recording:
    trials = np.load(root / f"{subject}.npy").astype(np.float32) * scale
    return Recording.of_trials(subject, trials, [0, 1] * (len(trials) // 2), ["C3", "C4"], 100)

def wrong_subject(root: Path, subject: str) -> Recording:
    return Recording.of_trials("anna", np.ones((2, 1, 9)), [0, 1], ["C3"], 100)

def number(root: Path, subject: str) -> int:
    return 3

def breaks(root: Path, subject: str) -> Recording:
    raise KeyError("no such thing")
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Put a module `lab_reader` on the path, and files of two subjects in a folder."""
    (tmp_path / "lab_reader.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    root = tmp_path / "files"
    root.mkdir()
    for seed, subject in enumerate(("anna", "bert")):
        trials = np.random.default_rng(seed).normal(0, 10, (6, 2, 50))
        np.save(root / f"{subject}.npy", trials)
    yield root
    sys.modules.pop("lab_reader", None)


def test_a_function_reads_a_data_set(lab, cache_dir):
    source = open_windows("lab_reader:read", lab, cache_dir=cache_dir)
    assert (source.subjects, len(source)) == (("anna", "bert"), 12)
    doubled = open_windows(
        "lab_reader:read", lab, options={"arguments": {"scale": 2.0}}, cache_dir=cache_dir
    )
    np.testing.assert_allclose(doubled.gather([0]), 2 * source.gather([0]))
    assert doubled.fingerprint != source.fingerprint


def test_another_version_of_the_code_is_another_data_set(lab, cache_dir):
    before = open_windows("lab_reader:read", lab, cache_dir=cache_dir)
    module = lab.parent / "lab_reader.py"
    module.write_text(CODE.replace("* scale", "* scale * 3"))
    del sys.modules["lab_reader"]
    after = open_windows("lab_reader:read", lab, cache_dir=cache_dir)
    assert after.fingerprint != before.fingerprint
    np.testing.assert_allclose(after.gather([0]), 3 * before.gather([0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("lab_reader:number", ConfigError, "annotated to return a Recording"),
        ("lab_reader:CODE", ConfigError, "annotated to return a Recording"),
        ("not_there:read", ConfigError, "cannot be imported"),
        ("lab_reader:breaks", DataError, "raised KeyError: 'no such thing'"),
        ("lab_reader:wrong_subject", DataError, "Recording of subject 'anna'"),
    ],
)
def test_what_is_no_reader_is_refused(lab, cache_dir, name, error, words):
    with pytest.raises(error, match=words):
        open_windows(name, lab, subjects=["bert"], cache_dir=cache_dir)


def test_a_stored_study_may_not_start_a_reader(lab):
    text = """
name = "x"
datasets = [{ name = "lab", use = "lab_reader:read" }, "moabb:FakeDataset"]
backbones = ["eegnet"]
optimizers = ["adam"]
"""
    study = parse_study(text)
    assert names_in_study(study) == ("lab_reader:read",)
    assert names_in_spec({"data": {"reader": "lab_reader:read"}}) == ("lab_reader:read",)
    assert names_in_spec({"data": {"reader": "moabb:X"}}) == ()
    with pytest.raises(ConfigError, match="names code that is not part of afor: lab_reader:read"):
        refuse_stored_code(study, "x.db")
    with pytest.raises(ConfigError, match="lab_reader:read"):
        with_trusted_readers(study, {"lab"}, "x.db", trust=False)
    others = with_trusted_readers(study, {"moabb:FakeDataset"}, "x.db", trust=False)
    assert [entry.name for entry in others.datasets] == ["moabb:FakeDataset"]
    assert with_trusted_readers(study, {"lab"}, "x.db", trust=True).datasets[0].name == "lab"
    overridden(text, "x", Overrides(epochs=2))  # a change of the text imports nothing
    assert "lab_reader" not in sys.modules


@pytest.mark.usefixtures("train_here")
def test_verify_imports_no_reader_that_a_store_names(tmp_path, monkeypatch):
    """The study's text is changed in the store; the specs of its runs still name `synthetic`."""
    text = """
name = "x"
datasets = [{ name = "synthetic", options = { n_subjects = 3, trials = 4 } }]
backbones = ["eegnet"]
optimizers = ["adam"]
training = { max_epochs = 1, batch_size = 8 }
protocol = { repetitions = 1, only_folds = [0] }
"""
    evil = text.replace('name = "synthetic",', 'name = "synthetic", use = "evil:read",')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    study = parse_study(text)
    run_study(study, evil, Path("x.db"), LocalEngine(1), cache_dir=tmp_path / "cache")
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    answer = CliRunner().invoke(app, ["store", "verify", "x.db"])
    assert isinstance(answer.exception, ConfigError)
    assert "evil:read. Nothing was imported" in str(answer.exception)
    assert "evil" not in sys.modules
