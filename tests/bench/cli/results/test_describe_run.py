import json
from dataclasses import replace

import pytest

from afor.bench.cli.results.stores import EPOCHS_SHOWN, describe_run
from afor.bench.store.database import open_store
from afor.bench.training.record import Epoch, FinishedRun


@pytest.fixture
def shown(tiny):
    """Return a run of each optimizer with the cells it stands in."""
    tiny.write(optimizers=("a", "raiser", "diverger"), subjects=3, repetitions=1, padding=2)
    tiny.run_inline()
    found = {}
    with open_store(tiny.store) as store:
        for cell in store.runs():
            found[cell.method] = (cell.key, store.run(cell.key), [cell])
    return found


def test_a_done_run_is_told_with_all_that_made_it_and_all_that_came_out(shown):
    key, run, cells = shown["a"]
    text = describe_run(key, run, cells)
    assert f"key        {key}" in text
    assert "study      tiny: synthetic × tiny × a, fold 2, repetition 0" in text
    assert "status     done\n" in text
    assert run.finished_at in text
    for name, value in run.spec.items():  # all that decides the number, in full
        assert any(
            line.split(maxsplit=1) == [name, json.dumps(value)] for line in text.splitlines()
        )
    assert f"accuracy {run.record.test.accuracy:.4f}" in text
    assert f"test       {run.record.test.n} windows" in text
    assert "confusion (rows: truth)" in text
    assert "1 epochs, 1 steps, 1 parameters, on cpu" in text
    first, last = run.record.traces["padding"]["beta2"]
    assert f"beta2 of padding: {first:.5f} at first, {last:.5f} at last" in text
    assert "traceback" not in text


def test_a_run_of_two_studies_names_both(shown):
    key, run, cells = shown["a"]
    text = describe_run(key, run, [*cells, replace(cells[0], study="second")])
    assert "study      tiny:" in text
    assert "study      second:" in text


def test_of_a_long_training_the_best_epoch_and_the_last_are_shown(shown):
    key, run, cells = shown["a"]
    history = tuple(Epoch(1.0 + n, 2.0, 0.5, 0.0, 0.0) for n in range(40))
    record = replace(run.record, history=history, best_epoch=3)
    lines = describe_run(key, replace(run, record=record), cells).splitlines()
    epochs = [line for line in lines if line.startswith("  epoch")]
    assert len(epochs) == 1 + EPOCHS_SHOWN
    assert epochs[0].startswith("  epoch   4  train loss 4.0000")
    assert epochs[0].endswith("best")
    assert not any(line.endswith("best") for line in epochs[1:])
    assert epochs[-1].startswith("  epoch  40")


def test_a_failed_run_ends_with_its_traceback_and_a_diverged_one_has_no_test(shown):
    key, run, cells = shown["raiser"]
    text = describe_run(key, run, cells)
    assert "status     failed: RuntimeError: this optimizer never works" in text
    assert text.endswith("RuntimeError: this optimizer never works")
    assert "\ntraining   " not in text
    text = describe_run(*shown["diverger"])
    assert "status     diverged: the training loss became nan in epoch 1" in text
    assert "\ntest " not in text


def test_a_run_that_is_not_trained_yet_says_so(shown):
    key, run, cells = shown["a"]
    assert isinstance(run, FinishedRun)
    text = describe_run(key, None, cells)
    assert text.splitlines()[-1] == "status     open: not trained yet"
