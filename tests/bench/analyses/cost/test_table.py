import pytest

from afor.bench.analyses.cost.views import column_label, cost_table
from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import to_csv, to_latex, to_markdown


def written(**changes):
    same = {"adam": 1.0, "afor": 2.0}
    return {
        "backbone": "eegnet", "dataset": "deap", "parameters": 1746, "tensors": 12, "batch": 256,
        "weight_decay": 1e-4, "rounds": 25, "network_flops": 118_554_720,
        "unknown_operators": {},
        "measures": {
            "kflops": {"adam": 26.298, "afor": 45.984}, "extra_kflops": {"afor": 19.686},
            "state_kb": {"adam": 13.6875, "afor": 14.109}, "needed_state_kb": {"adam": 13.6875,
            "afor": 13.969}, "step_us": same, "latency_ratio": {"adam": 1.0, "afor": 0.06},
            "latency_ratio_low": {"adam": 1.0, "afor": 0.05},
            "latency_ratio_high": {"adam": 1.0, "afor": 0.07}, "extra_ms": {"afor": -0.5},
        },
        **changes,
    }  # fmt: skip


def rows_of(table):
    return {row.label: [cell.text for cell in row.cells] for row in table.rows}


def test_ours_stands_below_the_papers_rows_on_the_papers_network():
    table = cost_table(written())
    labels = [row.label for row in table.rows]
    assert labels.index("paper") < labels.index("ours")
    first, second = (row for row in table.rows if row.label == "state memory (KB)")
    assert [cell.text for cell in first.cells] == ["13.69", "14.11"]
    assert [cell.text for cell in second.cells] == ["13.69", "14.11"]


def test_on_another_network_there_is_nothing_of_the_paper():
    table = cost_table(written(dataset="isruc"))
    assert "paper" not in [row.label for row in table.rows]
    assert not any(record["source"] == "paper" for record in table.records)


def test_ratios_and_their_spread_are_printed():
    rows = rows_of(cost_table(written()))
    assert rows["time / Adam's"] == ["1.00", "0.06"]
    assert rows["… quartiles of rounds"] == ["1.00–1.00", "0.05–0.07"]
    assert rows["extra latency vs. Adam (ms)"] == ["–", "−0.50"]


def test_notes_say_what_is_counted():
    notes = " ".join(cost_table(written()).notes)
    assert "13.97 KB without them" in notes
    assert "0.039 % of it" in notes
    assert "how it counted is not stated" in notes
    unknown = written(unknown_operators={"afor": ["cumsum"]})
    assert "not counted: cumsum" in " ".join(cost_table(unknown).notes)


def test_every_form_holds_it():
    table = cost_table(written())
    assert "45.98" in to_markdown(table)
    assert "45.98" in to_latex(table)
    assert to_latex(table).isascii()  # what LaTeX does not know stops it
    assert "ours,kflops,afor,45.984" in to_csv(table)


def test_a_file_of_something_else_is_refused():
    with pytest.raises(ConfigError, match="afor analyse cost -o FILE"):
        cost_table({"measures": {"kflops": {"adam": 1.0}}})
    with pytest.raises(ConfigError, match="afor analyse cost -o FILE"):
        cost_table({"state_kb": {"adam": 13.0}})


def test_implementations_are_named():
    assert column_label("adam fused") == "Adam fused"
    assert column_label("mylab:Mine") == "mylab:Mine"
