import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.cli.catalog.models import recorded_sizes
from afor.bench.common.errors import ConfigError
from afor.bench.models.registry import BACKBONES

runner = CliRunner()
TOOL = Path(__file__).parents[4] / "tools" / "model_sizes.py"


def test_the_table_shows_every_backbone_with_its_size():
    result = runner.invoke(app, ["models"], env={"COLUMNS": "140", "NO_COLOR": "1"})
    assert result.exit_code == 0
    for name in BACKBONES:
        assert name in result.stdout
    for text in ("1,746", "250,709", "371 tensors", "ISRUC", "PhysioNet MI", "Next: afor"):
        assert text in result.stdout
    for text in ("Lawhern 2018", "AFOR authors", "6,213,878", "2,325,472*", "repair = true"):
        assert text in result.stdout
    assert "\x1b" not in result.stdout


def test_json_holds_the_same_numbers():
    result = runner.invoke(app, ["models", "--json"])
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == list(BACKBONES)
    assert [row["family"] for row in rows] == 4 * ["original"] + 4 * ["authors"]
    assert rows[0]["sizes"]["DEAP"] == {"parameters": 1746, "tensors": 12}
    assert all(len(row["sizes"]) == 4 for row in rows)
    nsal_dgat, hslt = rows[6], rows[7]
    repaired = {"parameters": 2_325_472, "tensors": 24, "settings": {"repair": True}}
    assert nsal_dgat["sizes"]["ISRUC"] == repaired
    assert "settings" not in nsal_dgat["sizes"]["DEAP"]
    assert hslt["sizes"]["PhysioNet MI"] is None


def test_the_table_fits_eighty_columns():
    result = runner.invoke(app, ["models"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert "…" not in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_a_network_in_the_current_folder_is_found_as_a_study_finds_it(tmp_path, monkeypatch):
    (tmp_path / "network_beside_models.py").write_text(
        "from torch import nn\n"
        "class Narrow(nn.Module):\n"
        "    def __init__(self, shape):\n"
        "        super().__init__()\n"
        "        if shape.channels > 32:\n"
        "            raise ValueError('too many')\n"
        "        self.head = nn.Linear(shape.channels * shape.samples, shape.classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    answer = runner.invoke(app, ["models", "network_beside_models:Narrow", "--json"])
    (row,) = json.loads(answer.stdout)
    assert row["sizes"]["BCI IV 2a"] == {"parameters": 22 * 250 * 4 + 4, "tensors": 2}
    assert row["sizes"]["PhysioNet MI"] is None
    table = runner.invoke(app, ["models", "network_beside_models:Narrow"])
    assert "22,004" in table.stdout
    assert "eegnet" not in table.stdout
    (known,) = json.loads(runner.invoke(app, ["models", "hslt", "--json"]).stdout)
    assert known["name"] == "hslt"
    unknown = runner.invoke(app, ["models", "eegnt"])
    assert isinstance(unknown.exception, ConfigError)
    assert "Did you mean 'eegnet'" in str(unknown.exception)


def test_the_recorded_sizes_are_those_of_the_networks():
    measured = runpy.run_path(str(TOOL))["measure_sizes"]()
    assert measured == recorded_sizes()
    assert list(measured) == list(BACKBONES)


def test_the_list_needs_no_torch():
    code = (
        "import sys; from afor.bench.cli.catalog.models import models; models(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_networks_of_braindecode_that_fit_a_shape_are_listed(monkeypatch):
    class Fits(nn.Module):
        def __init__(self, n_chans, n_outputs, n_times, sfreq):  # noqa: ARG002
            super().__init__()
            print("printed by a network")
            self.layer = nn.Linear(n_chans * n_times, n_outputs)

        def forward(self, x):
            return self.layer(x.flatten(1))

    class Sequence(Fits):
        def forward(self, x):
            return super().forward(x)[..., None]

    class TooLong(nn.Module):
        def __init__(self, n_chans, n_outputs, n_times, sfreq):  # noqa: ARG002
            super().__init__()
            raise ValueError("n_times must be at least 1000")

    fake = ModuleType("braindecode.models")
    fake.Fits, fake.Sequence, fake.TooLong, fake.number = Fits, Sequence, TooLong, 3
    monkeypatch.setitem(sys.modules, "braindecode", ModuleType("braindecode"))
    monkeypatch.setitem(sys.modules, "braindecode.models", fake)
    words = ["models", "--braindecode", "3x10@100,2"]
    printed = runner.invoke(app, words).stdout
    assert "1 of 3 fit 3 × 10 samples at 100 Hz with 2 classes" in printed
    rows = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert rows == [
        {"name": "braindecode:Fits", "parameters": 62, "reason": ""},
        {
            "name": "braindecode:Sequence",
            "parameters": None,
            "reason": "returns (2, 2, 1) for two windows, not one logit per class",
        },
        {
            "name": "braindecode:TooLong",
            "parameters": None,
            "reason": "n_times must be at least 1000",
        },
    ]
    refused = runner.invoke(app, ["models", "--braindecode", "3x10"])
    assert "expected CHANNELSxSAMPLES@RATE,CLASSES" in str(refused.exception)


def test_the_real_networks_of_braindecode_are_listed():
    pytest.importorskip(
        "braindecode.models", reason="braindecode cannot be imported", exc_type=ImportError
    )
    rows = json.loads(
        runner.invoke(app, ["models", "--braindecode", "19x500@250,4", "--json"]).stdout
    )
    fitting = [row["name"] for row in rows if row["parameters"] is not None]
    assert {"braindecode:EEGNet", "braindecode:ShallowFBCSPNet"} <= set(fitting)
    assert len(fitting) >= 40
