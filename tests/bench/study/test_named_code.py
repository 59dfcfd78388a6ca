"""No file is executed because it lies in the current folder, beside a study or in a store."""

import hashlib
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import afor.bench
from afor.bench.cli.app import app
from afor.bench.common.errors import AforError, ConfigError, StoreError
from afor.bench.common.module_search import add_folders, import_named
from afor.bench.execution.verify import runs_with_code, sample_runs, verify_runs
from afor.bench.store.database import open_store
from afor.bench.study.named_code import code_of, list_names, names_in_spec, names_in_study
from afor.bench.study.schema import load_study, parse_study
from afor.bench.training.execute import resolve_trainer
from afor.bench.training.record import encode

runner = CliRunner()
# Packages that are there, of the standard library and optional ones that are looked for in vain.
SHADOWS = ("numpy", "torch", "pickle", "signal", "opt_einsum", "sitecustomize", "afor")
TRAINER = """
import {helper}
from tiny_trainer import train as tiny_train


def train(spec, source):
    {helper}.notice()
    return tiny_train(spec, source)
"""


def plant(folder, *names):
    """Write modules that leave a mark when they are executed."""
    for name in names:
        mark = folder / f"{name}.executed"
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")


def marks(folder):
    return sorted(path.name for path in folder.glob("*.executed"))


def afor_command():
    """Return the installed command, or what it does where only the sources are on the path."""
    script = Path(sys.executable).with_name("afor")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-P", "-c", "from afor.bench.cli.app import main; main()"]


def run_afor(folder, *arguments, code=0, path=()):
    package = str(Path(afor.bench.__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([package, *map(str, path)]),
        "AFOR_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        [*afor_command(), *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture
def study(small_study):
    """Give a study of one training of a network."""
    return small_study(
        optimizers=["adam"],
        training={"max_epochs": 1, "batch_size": 8},
        protocol={"only_folds": [0]},
        options={"n_subjects": 3, "trials": 6, "channels": ["C3", "Cz", "C4"]},
    )


def test_no_file_of_the_current_folder_or_beside_the_study_takes_the_place_of_a_package(
    tmp_path, study
):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "real.toml").write_text(study)
    plant(tmp_path, *SHADOWS)
    plant(tmp_path / "s", *SHADOWS)
    assert "1 done (1 trained now)" in run_afor(tmp_path, "run", "s/real.toml", "-j", "1")
    verified = run_afor(tmp_path, "store", "verify", "s/real.toml", "--count", "1", "-j", "1")
    assert "1 of 1 repeated runs gave the same bits" in verified
    assert marks(tmp_path) + marks(tmp_path / "s") == []


def test_a_module_beside_the_study_file_is_found_and_shadows_nothing(tiny, tmp_path):
    study, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    study.mkdir()
    elsewhere.mkdir()
    (study / "beside_trainer.py").write_text(TRAINER.format(helper="beside_helper"))
    (study / "beside_helper.py").write_text(
        f"def notice(): open({str(study / 'noticed')!r}, 'a').write('x')\n"
    )
    plant(study, "numpy", "pickle")
    plant(elsewhere, "numpy", "pickle", "beside_helper")
    tiny.write(subjects=3, repetitions=1)
    text = tiny.file.read_text().replace("tiny_trainer:train", "beside_trainer:train")
    (study / "tiny.toml").write_text(text)
    faults = Path(__file__).parents[1] / "faults"
    done = run_afor(elsewhere, "run", study / "tiny.toml", "-j", "1", path=[faults])
    assert "6 done (6 trained now)" in done
    assert len((study / "noticed").read_text()) == 6
    assert marks(study) + marks(elsewhere) == []


def test_an_optimizer_and_a_network_beside_the_study_are_trained(tmp_path, study):
    (tmp_path / "lab_parts.py").write_text(
        "import torch\n"
        "class Descent(torch.optim.SGD):\n"
        "    def __init__(self, params, lr, weight_decay=0.0):\n"
        "        super().__init__(params, lr=lr, weight_decay=weight_decay)\n"
        "class Head(torch.nn.Module):\n"
        "    def __init__(self, shape):\n"
        "        super().__init__()\n"
        "        self.head = torch.nn.Linear(shape.channels * shape.samples, shape.classes)\n"
        "    def forward(self, signal):\n"
        "        return self.head(signal.flatten(1))\n"
    )
    text = study.replace('"adam"', '"lab_parts:Descent"').replace('"eegnet"', '"lab_parts:Head"')
    (tmp_path / "real.toml").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    done = run_afor(tmp_path / "elsewhere", "run", "../real.toml", "-j", "1")
    assert "1 done (1 trained now)" in done


def test_folders_that_do_not_exist_here_are_not_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    add_folders([str(tmp_path), str(tmp_path / "absent"), str(tmp_path)])
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1
    assert str(tmp_path / "absent") not in sys.path


# What a name must be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("builtins:print", "Python function of two arguments"),
        ("os:system", "Python function of two arguments"),
        ("subprocess:call", "Python function of two arguments"),
        ("json:dumps", "Python function of two arguments"),
        ("json:absent", 'has no trainer "absent"'),
        ("", "not of the form module:name"),
        (":", "not of the form module:name"),
        (".x:y", "not of the form module:name"),
        ("x:", "not of the form module:name"),
        ("json", "not of the form module:name"),
        ("json..x:y", "not of the form module:name"),
        ("no_such_module:train", "beside the study file"),
        ("json.no_such_module:train", "cannot be imported"),
    ],
)
def test_what_is_no_trainer_gives_one_sentence_and_is_not_called(
    target, words, tmp_path, study, capfd
):
    with pytest.raises(ConfigError, match=words) as refused:
        resolve_trainer(target)
    assert target in str(refused.value)
    (tmp_path / "s.toml").write_text(f'trainer = "{target}"\n{study}')
    planned = runner.invoke(app, ["plan", str(tmp_path / "s.toml")])
    assert isinstance(planned.exception, ConfigError)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("body", ["1 +", "raise RuntimeError('x')", "import sys; sys.exit(3)"])
def test_a_module_that_breaks_when_it_is_imported_gives_a_sentence(body, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"breaks_{len(body)}"
    (tmp_path / f"{name}.py").write_text(body)
    with pytest.raises(ConfigError, match=f'optimizer "{name}:X": module "{name}" cannot be'):
        import_named(f"{name}:X", "optimizer")


def test_plan_never_calls_what_is_no_network(tmp_path, study, capfd):
    (tmp_path / "s.toml").write_text(study.replace('"eegnet"', '"os:system"'))
    planned = runner.invoke(app, ["plan", str(tmp_path / "s.toml")])
    assert isinstance(planned.exception, ConfigError)
    assert "subclass of torch.nn.Module" in str(planned.exception)
    assert "InputShape" not in capfd.readouterr().err  # what the shell would have said


# Stores -------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tiny):
    """Give a store whose runs name a trainer that notes every training."""
    tiny.write(optimizers=("a",), subjects=3, repetitions=1)
    tiny.run_inline()
    tiny.log.unlink()
    return tiny


def change_spec(path, change, key=None, number=0):
    """Write a run with another spec, under its old key or the key given."""
    with open_store(path, write=True) as store:
        old = store.runs()[number].key
        fields = json.loads(encode(store.run(old)))
        change(fields["spec"])
        fields["key"] = key(fields["spec"]) if key else old
        ((name, toml),) = store.studies().items()
        rows = [
            replace(row, key=fields["key"]) if row.key == old else row
            for row in store.plan_rows(name)
        ]
        store.forget([old])
        store.replace_study(name, toml, rows)
        store.add(json.dumps(fields, separators=(",", ":")).encode())
    return fields["key"]


def test_what_a_spec_and_a_study_name_is_listed(study):
    named = parse_study(
        'trainer = "mine:train"\n' + study.replace('"adam"', '"adam", "lab:Opt", "torch.optim:SGD"')
    )
    assert names_in_study(named) == ("mine:train", "lab:Opt", "torch.optim:SGD")
    assert names_in_study(parse_study(study)) == ()
    spec = {
        "trainer": {"source": "mine:train"},
        "backbone": {"name": "braindecode:EEGNet"},
        "optimizer": {"name": "lab:Opt"},
    }
    assert names_in_spec(spec) == ("mine:train", "braindecode:EEGNet", "lab:Opt")
    assert names_in_spec({"backbone": {"name": "eegnet"}, "optimizer": {"name": "adam"}}) == ()
    assert names_in_spec({"trainer": {"source": "afor.bench.training.execute:train_run"}}) == ()
    assert names_in_spec({"trainer": 3, "backbone": None}) == ()
    assert list_names(["b:\x1b[2J", "a:x"]) == r"a:x, b:\x1b[2J"


def test_verify_lists_the_code_of_a_store_and_trains_it_only_on_trust(stored):
    text = stored.call("-j", "1", command="store verify", code=2)
    assert "code named by the store: tiny_trainer:train (3 runs)" in text
    assert "Add --trust" in text
    assert stored.trainings() == []
    trusted = stored.call("-j", "1", "--trust", command="store verify")
    assert "code named by the store: tiny_trainer:train (3 runs)" in trusted
    assert "3 of 3 repeated runs gave the same bits" in trusted
    assert len(stored.trainings()) == 3


def test_verify_imports_nothing_that_a_store_names(stored, tmp_path, monkeypatch):
    from afor.bench.study.planned_runs import run_key

    plant(tmp_path, "stranger")
    parts = (("trainer", "source"), ("backbone", "name"), ("optimizer", "name"))
    for number, (part, key) in enumerate(parts):

        def change(spec, part=part, key=key):
            spec.pop("trainer", None)
            spec[part] = {**spec.get(part, {}), key: "stranger:Net"}

        change_spec(stored.store, change, run_key, number)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = stored.call("-j", "1", command="store verify", code=2)
    assert "code named by the store: stranger:Net (3 runs)" in text
    assert marks(tmp_path) == []


def test_runs_without_code_are_verified_beside_those_with_code(stored, monkeypatch):
    from afor.bench.study.planned_runs import run_key

    key = change_spec(stored.store, lambda spec: spec.pop("trainer"), run_key)
    trained = []

    def verify_only(_store, cells, *_arguments, trust):
        trained.extend((cell.key, trust) for cell in cells)
        yield from ()

    monkeypatch.setattr("afor.bench.cli.results.stores.verify_runs", verify_only)
    result = runner.invoke(app, ["store", "verify", str(stored.store), "--count", "0", "-j", "1"])
    assert result.exit_code == 0, result.output
    assert "2 runs name code that is not part of afor. They are left out" in result.stderr
    assert trained == [(key, False)]


def test_a_spec_that_does_not_fit_its_key_is_refused(stored, tmp_path):
    key = change_spec(stored.store, lambda spec: spec["optimizer"].update(lr=0.5))
    text = stored.call("--trust", command="store verify", code=4)
    assert "is not the one its key was made from" in text
    assert stored.trainings() == []
    with open_store(stored.store) as store:
        cells = [cell for cell in sample_runs(store, 0, seed=0) if cell.key == key]
        with pytest.raises(StoreError, match="its key was made from"):
            runs_with_code(store, cells)
        with pytest.raises(StoreError, match="its key was made from"):
            next(verify_runs(store, cells, {}, tmp_path, 1, trust=True))


def test_verify_from_python_refuses_code_without_trust(stored, tmp_path):
    with open_store(stored.store) as store:
        cells = sample_runs(store, 0, seed=0)
        with pytest.raises(ConfigError, match=r"names code.*tiny_trainer:train.*trust=True"):
            next(verify_runs(store, cells, {}, tmp_path, 1))
        assert sample_runs(store, 0, 0, leave_out={c.key for c in cells}) == []


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_study_read_from_a_store_runs_its_code_only_on_trust(stored, command):
    stored.file.unlink()
    text = stored.call(command=command, study="tiny", code=2)
    assert "names code that is not part of afor: tiny_trainer:train" in text
    assert "--trust" in text
    assert "3 done" in stored.call("--trust", command=command, study="tiny")
    assert "tiny_trainer:train" in stored.call(command="study", study="tiny")


def test_matched_writes_no_study_that_names_the_code_of_a_store(tmp_path, monkeypatch):
    study = load_study("demo").model_copy(update={"trainer": "stranger:train"})
    monkeypatch.setattr(
        "afor.bench.cli.analyses.matched_study",
        lambda *_, **__: type("Made", (), {"study": study, "toml": "x"})(),
    )
    monkeypatch.setattr("afor.bench.cli.analyses.open_store", lambda _: nullcontext())
    target = tmp_path / "m.toml"
    refused = runner.invoke(app, ["analyse", "matched", str(tmp_path / "s.db"), "-o", str(target)])
    assert isinstance(refused.exception, AforError)
    assert "stranger:train" in str(refused.exception)
    assert not target.exists()


def test_the_key_of_a_run_knows_the_helpers_of_its_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "my_lab_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(
        "from .parts import scale\nimport my_lab_helper\nNet = object\n"
    )
    (package / "parts.py").write_text("from my_lab_far import far as scale\n")
    (tmp_path / "my_lab_helper.py").write_text("SCALE = 1\n")
    (tmp_path / "my_lab_far.py").write_text("far = 1\n")
    (tmp_path / "my_lab_other.py").write_text("")
    before = code_of("my_lab_pkg.nets:Net", "backbone")
    seen = {before["source_sha256"]}
    for name in (
        "my_lab_helper.py",
        "my_lab_far.py",
        "my_lab_pkg/parts.py",
        "my_lab_pkg/__init__.py",
    ):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "# changed\n")
        seen.add(code_of("my_lab_pkg.nets:Net", "backbone")["source_sha256"])
    assert len(seen) == 5
    (tmp_path / "my_lab_other.py").write_text("# not imported\n")
    assert code_of("my_lab_pkg.nets:Net", "backbone")["source_sha256"] in seen


def test_code_without_helpers_is_known_by_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "my_lab_alone.py"
    file.write_text("import json\nNet = object\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert code_of("my_lab_alone:Net", "backbone")["source_sha256"] == digest


def test_installed_code_is_known_by_its_version():
    found = code_of("numpy.linalg:norm", "optimizer")
    assert found == {"source": "numpy.linalg:norm", "distribution": f"numpy {version('numpy')}"}
    assert code_of("torch.optim:RAdam", "optimizer") == {"source": "torch.optim:RAdam"}
    assert code_of("afor", "optimizer") == {}
