import io
import re
import time

import pytest

from afor.bench.execution import progress as progress_module
from afor.bench.execution.progress import Progress
from afor.bench.execution.sources import open_sources
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import load_study
from afor.bench.training.execute import failed_run
from afor.bench.training.record import decode


@pytest.fixture
def cells(tiny):
    tiny.write(subjects=3)
    study = load_study(str(tiny.file))
    return make_plan(study, open_sources(study)).runs


def finish(cell, status="done", reason="", seconds=2.0):
    from dataclasses import replace

    run = decode(failed_run(cell.key, cell.spec, reason))
    return replace(run, status=status, reason=reason, elapsed_s=seconds)


def test_without_a_terminal_it_writes_plain_lines(cells, capsys):
    with Progress("tiny", workers=2) as progress:
        assert not progress.is_live
        progress.planned(cells, {})
        progress.started(cells[0].key, "worker 1")
        progress.ended(finish(cells[0]))
        progress.started(cells[1].key, "worker 1")
        progress.ended(finish(cells[1], "failed", "no luck"))
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    lines = err.splitlines()
    assert lines.pop(0) == "synthetic: computed subjects, not recordings of people"
    assert lines[0].startswith("tiny: 0 of 12 runs · starting 2 workers")
    assert re.match(
        r"failed: synthetic × tiny × b, fold 0, repetition 0 \(\w{12}\): no luck", lines[1]
    )
    assert "2 of 12 runs · 1 failed" in lines[2]
    assert "about 10 s left" in lines[2]  # ten runs of two seconds, two at a time


def test_without_a_terminal_it_does_not_wait_in_silence_for_the_first_run(
    cells, capsys, monkeypatch
):
    monkeypatch.setattr(progress_module, "PLAIN_EVERY_S", 0.01)
    with Progress("tiny", workers=2) as progress:
        progress.planned(cells, {})
        progress.started(cells[0].key, "worker 1")
        deadline = time.monotonic() + 10
        printed = ""
        while "1 training" not in printed and time.monotonic() < deadline:
            time.sleep(0.01)
            printed += capsys.readouterr().err
        assert "tiny: 0 of 12 runs · 1 training · " in printed
        progress.ended(finish(cells[0]))
        assert "training" not in progress.line()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_on_a_terminal_it_draws_a_bar_and_one_line_that_never_wraps(cells, width):
    from rich.console import Console

    with Progress("tiny", workers=1) as progress:
        progress.planned(cells, {cells[0].key: "done"})
        progress.started(cells[2].key, "worker 1")
        progress.console = Console(file=io.StringIO(), width=width)
        page = io.StringIO()
        Console(file=page, width=width).print(progress._picture())
    bar, line, end = page.getvalue().split("\n")
    assert set(bar.strip()) <= {"━", "╸", "╺"}
    assert len(bar) <= width
    assert len(line) <= width
    assert line.startswith("tiny: 1 of 12 runs"[: width - 3])
    assert end == ""


def test_before_the_plan_it_shows_what_is_read(capsys):
    progress = Progress("tiny", workers=1)
    show = progress.preparing("deap")
    show(0, 32, "s01")
    assert "reading deap, 32 subjects" in capsys.readouterr().err
    show(3, 32, "s04")
    assert "3 of 32 s04" in str(progress._picture())


def test_the_runs_of_a_bundle_share_their_worker(cells, capsys):
    with Progress("tiny", workers=2) as progress:
        progress.planned(cells, {})
        progress.ended(finish(cells[0]))
        for cell in cells[1:5]:
            progress.started(cell.key, "worker 1", 4)
        assert progress._seconds_left() == pytest.approx(22.0, abs=1.0)  # eleven runs, one worker
    assert capsys.readouterr().err
