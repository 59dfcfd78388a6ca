import tomllib

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import AforError
from afor.bench.store.database import open_store

runner = CliRunner()


@pytest.mark.usefixtures("train_here")
def test_a_changed_study_has_its_own_store_that_describes_it(tiny):
    tiny.write(optimizers=("a", "b"), subjects=3, repetitions=2)
    changes = [
        "--optimizer",
        "a",
        "--set",
        "protocol.repetitions=1",
        "--set",
        "datasets.synthetic.options.trials=6",
    ]
    planned = tiny.call(*changes, command="plan")
    assert "tiny-changed: 3 runs" in planned
    assert "--optimizer a --set protocol.repetitions=1" in planned.split("Next: ")[1]
    done = tiny.call(*changes)
    assert "It is called tiny-changed, in results/tiny-changed.db" in done
    assert "3 done (3 trained now)" in done
    assert not tiny.store.exists()
    with open_store(tiny.folder / "results" / "tiny-changed.db") as store:
        content = tomllib.loads(store.studies()["tiny-changed"])
    assert content["protocol"]["repetitions"] == 1
    assert content["datasets"][0]["options"]["trials"] == 6
    assert content["optimizers"] == ["a"]
    # From here on the name is enough: the store holds the study.
    assert "(0 trained now)" in tiny.call("--trust", study="tiny-changed")
    assert "2 of 2 repeated runs gave the same bits" in tiny.call(
        "--count", "2", "--trust", command="store verify", study="tiny-changed"
    )


def test_study_prints_the_changed_toml_and_the_command_that_made_it():
    asked = ["study", "ablation", "--dataset", "synthetic", "--epochs", "3"]
    result = runner.invoke(app, asked)
    content = tomllib.loads(result.stdout)
    assert (content["name"], content["training"]["max_epochs"]) == ("ablation-synthetic", 3)
    assert "afor study ablation --dataset synthetic --epochs 3 >" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "--epochs", "3"], "Name the study to change"),
        (["study", "ablation", "--dataset", "dep"], "Did you mean 'deap'?"),
        (["plan", "ablatoin", "--epochs", "3"], 'Did you mean "ablation"?'),
        (["run", "paper", "--set", "training.patiense=3"], 'Did you mean "patience"?'),
    ],
)
def test_a_change_that_cannot_be_is_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, arguments)
    assert isinstance(result.exception, AforError)
    assert message in str(result.exception)


def test_help_says_what_can_be_changed():
    for command in ("study", "plan", "run"):
        text = runner.invoke(app, [command, "--help"], env={"COLUMNS": "160"}).stdout
        for option in ("--dataset", "--backbone", "--optimizer", "--set"):
            assert option in text
