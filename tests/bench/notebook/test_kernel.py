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
