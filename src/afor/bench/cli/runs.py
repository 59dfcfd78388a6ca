"""The commands ``afor failures | show | verify``: single runs of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.cli.run import stopped_by_signals
from afor.bench.cli.study import (
    CachePath,
    Jobs,
    Json,
    Roots,
    StorePath,
    StudyName,
    Trust,
    cores,
    with_roots,
)
from afor.bench.common.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("failures")(failures)
    app.command("show")(show)
    app.command("verify")(verify)


def failures(
    name: StudyName,
    store: StorePath = None,
    retry: Annotated[bool, typer.Option("--retry", help="Let `afor run` train them anew.")] = False,
    json_: Json = False,
) -> None:
    """List the runs that failed or diverged, with the reason of each."""
    import json

    from afor.bench.common.printable_text import printable
    from afor.bench.execution.progress import describe
    from afor.bench.store.database import open_store
    from afor.bench.store.locations import find_store
    from afor.bench.store.lock import locked

    path = find_store(name, store)
    if retry:
        with locked(path), open_store(path, write=True) as opened:
            count = opened.forget_failed()
        typer.echo(f"{count} failed runs of {path} will be trained again.")
        typer.echo(f"\nNext: afor run {name}", err=True)
        return
    with open_store(path) as opened:
        bad = [cell for cell in opened.runs() if cell.status in ("failed", "diverged")]
    if json_:
        from dataclasses import asdict

        typer.echo(json.dumps([asdict(cell) for cell in bad], indent=1))
        return
    for cell in bad:
        typer.echo(printable(f"{cell.key[:12]}  {cell.status:<8}  {describe(cell)}: {cell.reason}"))
    if not bad:
        typer.echo("No run failed or diverged.")
        typer.echo(f"\nNext: afor status {name}", err=True)
        return
    typer.echo(f"\nNext: afor show {bad[0].key[:12]}, afor failures {name} --retry", err=True)


def show(
    key: Annotated[str, typer.Argument(help="The first digits of a run's key.")],
    store: StorePath = None,
    json_: Json = False,
) -> None:
    """Show everything about one run, and the command that repeats it."""
    import json
    from dataclasses import asdict

    from afor.bench.execution.describe import describe_run
    from afor.bench.store.database import open_store
    from afor.bench.store.locations import FOLDER
    from afor.bench.study.named_code import names_in_spec

    for path in [store] if store else sorted(FOLDER.glob("*.db")):
        with open_store(path) as opened:
            matches = opened.keys_like(key)
            if len(matches) > 1:
                shown = ", ".join(match[:16] for match in matches[:5])
                raise ConfigError(f"{key} fits {len(matches)} runs: {shown} … Give more digits.")
            if not matches:
                continue
            run = opened.run(matches[0])
            cells = [cell for cell in opened.runs() if cell.key == matches[0]]
        if json_:
            content = asdict(run) if run else {"key": matches[0], "status": "open"}
            typer.echo(json.dumps(content, indent=1))
            return
        typer.echo(describe_run(matches[0], run, cells))
        where = f" --store {path}" if store else ""
        trust = " --trust" if run and names_in_spec(run.spec) else ""
        repeat = f"afor verify {path} --key {matches[0][:12]}{trust}"
        typer.echo(f"\nNext: {repeat if run else f'afor run {cells[0].study}{where}'}", err=True)
        return
    place = store or f"any store in {FOLDER}"
    raise StoreError(f"No run with the key {key} in {place}. `afor status` lists what is there.")


def verify(
    name: StudyName,
    store: StorePath = None,
    count: Annotated[int, typer.Option(help="Runs to repeat; 0: all.")] = 3,
    key: Annotated[str, typer.Option(help="Repeat this run.")] = "",
    seed: Annotated[int, typer.Option(help="Another seed draws other runs.")] = 0,
    root: Roots = None,
    jobs: Jobs = 0,
    cache_dir: CachePath = None,
    trust: Trust = False,
) -> None:
    """Check the store, train a sample of its runs again and compare every number bit by bit."""
    import tempfile
    from contextlib import closing

    from afor.bench.execution.progress import describe
    from afor.bench.execution.runner import open_sources
    from afor.bench.execution.verify import runs_with_code, sample_runs, verify_runs
    from afor.bench.store.database import open_store
    from afor.bench.store.locations import find_store
    from afor.bench.study.schema import parse_study

    if count < 0:
        raise ConfigError(f"--count {count}: expected how many runs to repeat, or 0 for all.")
    path = find_store(name, store)
    different, first = 0, ""
    stopped = stopped_by_signals(f"{path} was only read.", f"afor verify {name}")
    with stopped, open_store(path) as opened, tempfile.TemporaryDirectory() as spool:
        opened.check()
        typer.echo(f"{path}: every page and every run is as it was written.")
        named = runs_with_code(opened, sample_runs(opened, None, 0, seed))
        if key:
            named = {one: names for one, names in named.items() if one.startswith(key)}
        _list_code(named, str(path), trust)
        left_out = () if trust else named.keys()
        cells = sample_runs(opened, None, 0 if key else count, seed, left_out)
        if key:
            cells = [cell for cell in cells if cell.key.startswith(key)]
        if not cells and left_out:
            raise ConfigError(
                f"{path}: no run is left that names only what is part of afor. Add --trust if you "
                f"know where the store and these modules come from."
            )
        if not cells:
            raise ConfigError(f"{path} has no finished run{' ' + key if key else ''} to repeat.")
        studies = opened.studies()
        sources = {}
        for text in dict.fromkeys(studies[cell.study] for cell in cells):
            sources.update(open_sources(with_roots(parse_study(text, str(path)), root), cache_dir))
        workers = jobs or cores()
        typer.echo(f"Training {len(cells)} of its runs again, {workers} at once.", err=True)
        repeated = verify_runs(opened, cells, sources, Path(spool), workers, trust=trust)
        with closing(repeated) as verdicts:
            for verdict in verdicts:
                word = "same bits" if verdict.is_same else "DIFFERENT"
                what = "" if verdict.is_same else f": {', '.join(verdict.differs_in)}"
                note = f" ({verdict.note})" if verdict.note else ""
                typer.echo(
                    f"{word}  {verdict.stored.key[:12]}  {describe(verdict.stored)}{what}{note}"
                )
                different += not verdict.is_same
                first = first or ("" if verdict.is_same else verdict.stored.key)
    typer.echo(f"{len(cells) - different} of {len(cells)} repeated runs gave the same bits.")
    if different:
        typer.echo(f"\nNext: afor show {first[:12]} --store {path}", err=True)
        raise typer.Exit(code=1)
    typer.echo(f"\nNext: afor export {name}", err=True)


def _list_code(named: "Mapping[str, tuple[str, ...]]", path: str, trust: bool) -> None:
    """Say which code the runs of a store name, before anything of it is imported."""
    from collections import Counter

    from afor.bench.study.named_code import shown

    counts = Counter(name for names in named.values() for name in names)
    for name, count in sorted(counts.items()):
        typer.echo(f"code named by the store: {shown([name])} ({count} runs)", err=True)
    if named and not trust:
        typer.echo(
            f"{path}: {len(named)} runs name code that is not part of afor. They are left out, "
            f"and nothing of it is imported; --trust trains them too.",
            err=True,
        )
