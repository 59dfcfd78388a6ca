"""The commands ``afor store`` and ``afor export``: runs, failures, repetition, merging, repair."""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import typer

from afor.bench.cli.results.reading import find_results
from afor.bench.cli.studies.run import stopped_by_signals
from afor.bench.cli.studies.selection import cores, with_roots
from afor.bench.cli.terminal import print_json, print_next, run_command
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.common.files import check_output
from afor.bench.common.text import counted, printable
from afor.bench.execution.runner import take_leftovers
from afor.bench.execution.sources import open_sources
from afor.bench.execution.verify import RepeatedRun, runs_with_code, sample_runs, verify_runs
from afor.bench.store.database import StoredRun, check_mergeable, open_or_create, open_store
from afor.bench.store.files import (
    check_suffix,
    export_rows,
    is_store,
    read_rows,
    to_csv,
    to_json,
    write_export,
)
from afor.bench.store.locations import FOLDER, find_store
from afor.bench.store.lock import locked
from afor.bench.store.repair import repair as copy_intact_runs
from afor.bench.study.named_code import list_names, names_in_spec, with_trusted_readers
from afor.bench.study.planned_runs import run_label
from afor.bench.study.schema import parse_study
from afor.bench.training.record import METRICS, FinishedRun, Metrics


def merge(target: Path, parts: list[str]) -> None:
    """Merge the stores of several machines or shards into one.

    The parts stay as they are. If two stores hold the same run, the first is kept.

    Args:
        target: The store file that receives all runs; created if missing.
        parts: The results to add: study names, TOML files or store files.

    Example:
        afor store merge results/paper.db results/paper.part-*.db
    """
    paths = [find_store(part) for part in parts]
    if target.resolve() in [path.resolve() for path in paths]:
        raise ConfigError(f"{target} is given as the target and as a part; name another target.")
    with ExitStack() as opened:  # check all of them before the target is created or changed
        known = [target] if target.exists() else []
        check_mergeable([opened.enter_context(open_store(path)) for path in (*known, *paths)])
    with locked(target), open_or_create(target) as store:
        take_leftovers(store)
        for path in paths:
            with open_store(path) as part:
                new, present, differing = store.merge(part)
            note = f"; {differing} of these with OTHER NUMBERS, the first kept" if differing else ""
            typer.echo(f"{path}: {counted(new, 'new run')}, {present} already here{note}")
        total = len(store.statuses())
    typer.echo(f"{target}: {counted(total, 'run')}")
    print_next(f"afor status {target}")


def repair(damaged: str, *, output: Path) -> None:
    """Copy the intact runs of a damaged store to a new store.

    What is lost is listed; the exit code is 1 if anything is.

    Args:
        damaged: The damaged results, which are only read: a study's name, its TOML file or a store
            file.
        output: The store file to create.

    Example:
        afor store repair results/demo.db --output results/new.db
    """
    with locked(output):
        result = copy_intact_runs(find_store(damaged), output)
    typer.echo(f"{output}: {counted(result.runs, 'run')}, {counted(len(result.studies), 'study')}")
    for key in result.lost_runs:
        typer.echo(f"lost: run {key}")
    for name in result.lost_studies:
        typer.echo(f"lost: study {name}; run its file into {output}")
    if not (result.lost_runs or result.lost_studies):
        print_next(f"afor status {output}")
        return
    names = [*result.lost_studies, *result.studies, "STUDY"]
    print_next(f"afor run {names[0]} --store {output}")
    raise typer.Exit(code=1)


def export(results: str, *, output: Path | None = None, as_json: bool = False) -> None:
    """Write one row per run as CSV, JSON or Parquet.

    A row holds the run's data set, backbone, method, fold, repetition, status, metrics, times,
    protocol and key.

    Args:
        results: The results: a study's name, its TOML file, a store file, or a file of `afor
            export`.
        output: A .csv, .json or .parquet file. [default: CSV to standard output]

    Example:
        afor export demo --output runs.csv
    """
    if output is not None:
        check_suffix(output)
        check_output(output)
    path = find_results(results)
    if is_store(path):
        with open_store(path) as opened:
            rows = export_rows(opened)
    else:
        rows = read_rows(path)
    if output is None:
        typer.echo(to_json(rows) if as_json else to_csv(rows), nl=False)
        return
    write_export(rows, output)
    if as_json:
        print_json(
            {"file": str(output), "format": output.suffix[1:], "runs": len(rows)}, indent=None
        )
        return
    typer.echo(f"{output}: {counted(len(rows), 'run')}")
    print_next(f"afor store verify {results}" if is_store(path) else f"afor judge {output}")


EPOCHS_SHOWN = 5


def failures(results: str, *, retry: bool = False, as_json: bool = False) -> None:
    """List the runs that failed or diverged, with the reasons.

    Args:
        retry: Let the next `afor run` train failed runs again.

    Example:
        afor store failures demo --retry
    """
    path = find_store(results)
    if retry:
        with locked(path), open_store(path, write=True) as opened:
            failed = [key for key, word in opened.statuses().items() if word == "failed"]
            opened.forget(failed)
            studies = list(opened.studies())
        typer.echo(f"{counted(len(failed), 'failed run')} of {path} will be trained again.")
        print_next(run_command(results, path, studies[0] if studies else "STUDY"))
        return
    with open_store(path) as opened:
        bad = [stored for stored in opened.runs() if stored.status in ("failed", "diverged")]
    if as_json:
        print_json([asdict(stored) for stored in bad])
        return
    for stored in bad:
        typer.echo(
            printable(
                f"{stored.key[:12]}  {stored.status:<8}  {run_label(stored)}: {stored.reason}"
            )
        )
    if not bad:
        typer.echo("No run failed or diverged.")
        print_next(f"afor status {results}")
        return
    print_next(
        f"afor store show {results} {bad[0].key[:12]}, afor store failures {results} --retry"
    )


def show(results: str, key: str | None = None, *, as_json: bool = False) -> None:
    """Show one run in full, and the command that repeats it.

    Args:
        results: The results: a study's name, its TOML file or a store file. A key alone is looked
            up in every store in results/.
        key: The first digits of a run's key.

    Example:
        afor store show demo 813b1b76feba
    """
    named = None if key is None else find_store(results)
    key = results if key is None else key
    for path in [named] if named else sorted(FOLDER.glob("*.db")):
        with open_store(path) as opened:
            matches = opened.keys_like(key)
            if len(matches) > 1:
                keys = ", ".join(match[:16] for match in matches[:5])
                raise ConfigError(f"{key} fits {len(matches)} runs: {keys} … Give more digits.")
            if not matches:
                continue
            run = opened.run(matches[0])
            stored_runs = [stored for stored in opened.runs() if stored.key == matches[0]]
        if as_json:
            content = asdict(run) if run else {"key": matches[0], "status": "open"}
            print_json(content)
            return
        typer.echo(describe_run(matches[0], run, stored_runs))
        if run:
            trust = " --trust" if names_in_spec(run.spec) else ""
            print_next(f"afor store verify {path} --key {matches[0][:12]}{trust}")
        else:
            print_next(f"afor run {stored_runs[0].study}{f' --store {path}' if named else ''}")
        return
    where = named or f"any store in {FOLDER}"
    raise StoreError(f"No run with the key {key} in {where}. `afor export` lists the keys of runs.")


def verify(
    results: str,
    *,
    count: int = 3,
    key: str = "",
    root: list[str] | None = None,
    jobs: int = 0,
    trust: bool = False,
    as_json: bool = False,
) -> None:
    """Train a sample of runs again and compare every bit.

    The store is checked first: every page and every run must be as it was written.

    Args:
        count: Number of runs to repeat; 0 repeats all.
        key: Repeat the run whose key starts with these digits.

    Example:
        afor store verify demo --count 10
    """
    if count < 0:
        raise ConfigError(f"--count {count}: expected the number of runs to repeat, or 0 for all.")
    path = find_store(results)
    verdicts: list[RepeatedRun] = []
    stopped = stopped_by_signals(f"{path} was only read.", f"afor store verify {results}")
    with stopped, open_store(path) as opened, tempfile.TemporaryDirectory() as spool:
        opened.check()
        if not as_json:
            typer.echo(f"{path}: every page and every run is as it was written.")
        with_code = runs_with_code(opened, sample_runs(opened, 0, 0))
        code_by_run = {name: code for name, code in with_code.items() if name.startswith(key)}
        _print_code(code_by_run, str(path), trust)
        left_out = () if trust else code_by_run.keys()
        sample = sample_runs(opened, 0 if key else count, 0, left_out)
        stored_runs = [stored for stored in sample if stored.key.startswith(key)]
        if not stored_runs and left_out:
            raise ConfigError(
                f"{path}: every run to repeat names code that is not part of afor. Add --trust if "
                f"you know where the store and these modules come from."
            )
        if not stored_runs:
            raise ConfigError(f"{path} has no finished run{' ' + key if key else ''} to repeat.")
        studies = opened.studies()
        sources = {}
        needed = {stored.dataset for stored in stored_runs}
        for text in dict.fromkeys(studies[stored.study] for stored in stored_runs):
            rooted = with_roots(parse_study(text, str(path)), root)
            trusted = with_trusted_readers(rooted, needed, str(path), trust=trust)
            sources.update(open_sources(trusted))
        workers = jobs or cores()
        typer.echo(f"Training {len(stored_runs)} of its runs again, {workers} at once.", err=True)
        repeated = verify_runs(opened, stored_runs, sources, Path(spool), workers, trust=trust)
        with closing(repeated):
            for verdict in repeated:
                verdicts.append(verdict)
                word = "same bits" if verdict.is_same else "DIFFERENT"
                parts = "" if verdict.is_same else f": {', '.join(verdict.differs_in)}"
                note = f" ({verdict.note})" if verdict.note else ""
                run = f"{verdict.stored.key[:12]}  {run_label(verdict.stored)}"
                if not as_json:
                    typer.echo(f"{word}  {run}{parts}{note}")
    different = [verdict.stored.key for verdict in verdicts if not verdict.is_same]
    if as_json:
        rows = [
            {
                "key": verdict.stored.key,
                "same": verdict.is_same,
                "differs_in": list(verdict.differs_in),
                "note": verdict.note,
            }
            for verdict in verdicts
        ]
        counts = {"intact": True, "different": len(different)}
        print_json({"store": str(path), **counts, "runs": rows})
        raise typer.Exit(code=1 if different else 0)
    total = len(stored_runs)
    typer.echo(f"{total - len(different)} of {total} repeated runs gave the same bits.")
    if different:
        print_next(f"afor store show {path} {different[0][:12]}")
        raise typer.Exit(code=1)
    print_next(f"afor export {results}")


def _print_code(code_by_run: Mapping[str, tuple[str, ...]], path: str, trust: bool) -> None:
    """List the code that the runs of a store name, before any of it is imported."""
    counts = Counter(name for names in code_by_run.values() for name in names)
    for name, count in sorted(counts.items()):
        typer.echo(
            f"code named by the store: {list_names([name])} ({counted(count, 'run')})", err=True
        )
    if code_by_run and not trust:
        typer.echo(
            f"{path}: {len(code_by_run)} runs name code that is not part of afor. They are left "
            f"out and none of their code is imported; --trust trains them too.",
            err=True,
        )


def describe_run(key: str, run: FinishedRun | None, stored_runs: Sequence[StoredRun]) -> str:
    """Return the studies, the specification and the results of a run as text."""
    lines = [f"key        {key}"]
    lines += [f"study      {stored.study}: {run_label(stored)}" for stored in stored_runs]
    kinds = dict.fromkeys(stored.data_kind for stored in stored_runs)
    lines += [f"data       {kind}" for kind in kinds]
    if run is None:
        return _text([*lines, "status     open: not trained yet"])
    status = f"{run.status}: {run.reason}" if run.reason else run.status
    lines.append(f"status     {status}")
    lines.append(f"finished   {run.finished_at}, after {run.elapsed_s:.2f} s")
    made_with = ", ".join(f"{name} {value}" for name, value in run.environment.items() if value)
    lines.append(f"made with  {made_with}")
    lines.append("spec")
    for name, value in sorted(run.spec.items()):
        lines.append(f"  {name:<11}{json.dumps(value, ensure_ascii=False)}")
    if run.record is not None:
        record = run.record
        lines.append(
            f"training   {len(record.history)} epochs, {record.steps} steps, "
            f"{record.parameters} parameters, on {record.device}"
        )
        for number, epoch in enumerate(record.history):
            is_best = number == record.best_epoch
            if is_best or number >= len(record.history) - EPOCHS_SHOWN:
                lines.append(
                    f"  epoch {number + 1:>3}  train loss {epoch.train_loss:.4f}  validation loss "
                    f"{epoch.validation_loss:.4f}  accuracy {epoch.validation_accuracy:.4f}"
                    f"{'  best' if is_best else ''}"
                )
        for label, metrics in (("windows", record.test), ("trials", record.test_trials)):
            if metrics is not None:
                lines += _metrics(label, metrics)
        if record.prequential:
            scores = record.metrics()
            lines.append(
                f"stream     {len(record.prequential)} subjects before the training on them: "
                f"accuracy {scores['prequential_accuracy']:.4f}  "
                f"nll {scores['prequential_nll']:.4f}"
            )
        if record.before_adaptation is not None:
            lines += _metrics("windows before the adaptation", record.before_adaptation)
        for group, trace in record.traces.items():
            beta2 = trace.get("beta2") or [float("nan")]
            lines.append(f"  beta2 of {group}: {beta2[0]:.5f} at first, {beta2[-1]:.5f} at last")
    if run.traceback:
        lines += ["traceback", *run.traceback.rstrip().expandtabs().split("\n")]
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(map(printable, lines))


def _metrics(label: str, metrics: Metrics) -> list[str]:
    scores = {name: getattr(metrics, name) for name in METRICS}
    values = "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if value is not None)
    matrix = "; ".join(" ".join(map(str, row)) for row in metrics.confusion)
    return [f"test       {metrics.n} {label}: {values}", f"  confusion (rows: truth)  {matrix}"]
