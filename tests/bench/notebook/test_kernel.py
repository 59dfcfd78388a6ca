"""Tables and figures in a notebook that a real kernel runs."""

import base64

import pytest

nbclient = pytest.importorskip("nbclient", reason="a notebook needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="a notebook needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat")

CELLS = (
    "from afor.bench.notebook.results import StudyResults\n"
    "from afor.bench.stats.design.simulated import simulate_results\n"
    "from afor.bench.stats.results import Results\n"
    "made = simulate_results({'adam': 0.0, 'afor': 0.02}, datasets=['bci2a'])\n"
    "results = StudyResults(Results.of(*made))",
    "results",
    "results.plot_gain()",
    "results.plot_folds()",
    "results.table('comparisons')",
)


def test_figures_are_images_and_tables_are_html_in_the_output_of_cells(tmp_path):
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    _, summary, gains, folds, table = (
        cell["outputs"][0]["data"] if cell["outputs"] else {} for cell in notebook.cells
    )
    assert "<table" in summary["text/html"]
    assert "<table" in table["text/html"]
    for shown in (gains, folds):
        assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")


TIMED = """
import numpy as np
import torch
from torch import nn
from afor.bench import compare


def decorated(cls):
    return cls


@decorated
class Net(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape.channels, shape.classes)

    def forward(self, x):
        return self.layer(x.abs().mean(-1))


rng = np.random.default_rng(0)
results = compare(
    rng.normal(0, 10, (24, 3, 64)), np.tile([0, 1], 12), np.repeat(list("abcd"), 6), rate_hz=64,
    methods=[torch.optim.AdamW, torch.optim.SGD], backbone=Net, lr=1e-3,
    minutes=0.2, max_epochs=1, batch_size=8, workers=1, cache_dir="cache",
)
"""


def test_a_limited_comparison_shows_verdict_and_figure_in_its_cell(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(TIMED)])
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [o["data"].get("text/html", "") for o in notebook.cells[0]["outputs"] if "data" in o]
    live = [html for html in shown if "data:image/png;base64," in html]
    assert live
    assert "Net, 4 folds" in live[-1]
    assert "notebook: 8 of 8 runs" in live[-1] or "notebook: 40 of 40 runs" in live[-1]
    assert len(shown) == 1  # one place, which is updated
    assert [o for o in notebook.cells[0]["outputs"] if "data" not in o] == []
    assert "<table" in live[-1]
