"""The commands ``afor data list | check | prepare | twin``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.data.check import CheckReport

Name = Annotated[
    str, typer.Argument(help="synthetic, deap, bci2a, isruc, physionet_mi, folder or moabb:<Name>.")
]
Root = Annotated[
    Path | None, typer.Option(help="Folder of the files. [default: NAME in $AFOR_DATA or ./data]")
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="A setting, KEY=VALUE, such as task=left_right."),
]
Cache = Annotated[
    Path | None, typer.Option(help="Folder of prepared trials. [default: $AFOR_CACHE]")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Leave this subject out.")]
Truncated = Annotated[bool, typer.Option(help="Accept the whole part of a truncated recording.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    data = typer.Typer(no_args_is_help=True, help="Find, check and prepare data sets.")
    data.command("list")(list_datasets)
    data.command("check")(check)
    data.command("prepare")(prepare)
    data.command("twin")(twin)
    app.add_typer(data, name="data")


def list_datasets(json_: Json = False) -> None:
    """Say what each data set is, its licence, where to get it and whether it is here."""
    import json
    from dataclasses import asdict

    from afor.bench.data.catalog import NAMES, get_dataset
    from afor.bench.data.loading import default_root

    found = []
    for name in NAMES:
        dataset = get_dataset(name)
        place = default_root(name)
        here = "embedded" if name == "synthetic" else str(place) if place.is_dir() else ""
        found.append({**asdict(dataset.info), "found": here})
    if json_:
        typer.echo(json.dumps(found, indent=1))
        return
    for entry in found:
        typer.echo(f"{entry['name']}  {entry['title']}")
        for key, label in (
            ("task", "task"), ("shape", "shape"), ("paper_windows", "windows"),
            ("licence", "licence"), ("where", "get it"), ("download", "--download"),
            ("layout", "layout"), ("citation", "cite"),
        ):  # fmt: skip
            if entry[key]:
                typer.echo(f"    {label:<11}{entry[key]}")
        missing = f"no (looked in {default_root(str(entry['name']))})"
        typer.echo(f"    {'found':<11}{entry['found'] or missing}")
    typer.echo("moabb:<Name>  any data set of MOABB, such as moabb:BNCI2014_001")
    typer.echo("\nNext: afor data check NAME --root FOLDER", err=True)


def check(
    name: Name,
    root: Root = None,
    option: Options = None,
    subject: Annotated[list[str] | None, typer.Option(help="Only these subjects.")] = None,
    exclude: Exclude = None,
    cache_dir: Cache = None,
    allow_truncated: Truncated = False,
    json_: Json = False,
) -> None:
    """Look at every subject: one line each, totals, oddities; exit 3 and a list when faulty."""
    import json

    from afor.bench.data.check import check_dataset

    with _progress(f"Checking {name}") as progress:
        report = check_dataset(
            name,
            root,
            options=_parse_options(option, allow_truncated),
            subjects=subject,
            exclude=exclude or (),
            cache_dir=cache_dir,
            progress=progress,
        )
    if json_:
        typer.echo(json.dumps(report.as_dict(), indent=1))
    else:
        _print_report(report)
    if report.faults:
        raise typer.Exit(code=3)
    typer.echo(f"\nNext: afor data prepare {name}{_root_hint(root)}", err=True)


def prepare(
    name: Name,
    root: Root = None,
    option: Options = None,
    exclude: Exclude = None,
    cache_dir: Cache = None,
    allow_truncated: Truncated = False,
    download: Annotated[bool, typer.Option(help="Fetch what is missing first.")] = False,
    accept_changed: Annotated[bool, typer.Option(help="Source files changed on purpose.")] = False,
    verify: Annotated[bool, typer.Option(help="Read every byte again, cached or not.")] = False,
    json_: Json = False,
) -> None:
    """Read, check and store the trials, so that runs only map them into memory."""
    import json

    from afor.bench.data.catalog import get_dataset
    from afor.bench.data.loading import default_root, open_windows

    options = _parse_options(option, allow_truncated)
    if download:
        dataset = get_dataset(name)
        if dataset.download is None:
            raise ConfigError(f"{name} cannot be downloaded by a program: {dataset.info.where}.")
        typer.echo(f"Downloading {dataset.info.title} …", err=True)
        dataset.download(root or default_root(name), dataset.parse(options))
    with _progress(f"Preparing {name}") as progress:
        source = open_windows(
            name,
            root,
            options=options,
            exclude=exclude or (),
            cache_dir=cache_dir,
            progress=progress,
            verify=verify,
            accept_changed=accept_changed,
        )
    summary = {
        "dataset": name,
        "subjects": len(source.subjects),
        "trials": sum(s.shape[0] for s in source.prepared),
        "windows": len(source),
        "window_shape": [len(source.channel_names), source.window_samples],
        "rate_hz": source.rate_hz,
        "classes": list(source.class_names),
        "bytes": sum(4 * s.shape[0] * s.shape[1] * s.shape[2] for s in source.prepared),
        "cache": str(source.folder),
        "fingerprint": source.fingerprint,
    }
    if json_:
        typer.echo(json.dumps(summary, indent=1))
    else:
        for key, value in summary.items():
            typer.echo(f"{key:<13}{value}")
    typer.echo("\nNext: afor study", err=True)


def twin(
    name: Annotated[str, typer.Argument(help="deap, bci2a or isruc.")],
    root: Annotated[Path, typer.Argument(help="New folder for the files.")],
    subject: Annotated[list[str] | None, typer.Option(help="Only these subjects.")] = None,
    trials: Annotated[
        int, typer.Option(min=0, max=10_000, help="Trials of a session; 0: as many as real.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Another seed, other subjects.")
    ] = 0,
) -> None:
    """Write a synthetic stand-in in a data set's real format, to rehearse without the data."""
    from afor.bench.data.catalog import STAND_IN_MARK
    from afor.bench.data.rehearsal.twins import write_twin

    if root.exists() and any(root.iterdir()) and not (root / STAND_IN_MARK).exists():
        raise ConfigError(f"{root} is not empty; a stand-in is never written beside other files.")
    files = write_twin(name, root, subject, trials=trials, seed=seed)
    typer.echo(f"{len(files)} files in {root}: synthetic, in the format of {name}")
    typer.echo(f"\nNext: afor data check {name} --root {root}", err=True)


def _print_report(report: "CheckReport") -> None:
    width = max([7, *(len(line.subject) for line in report.subjects)])
    typer.echo(f"{'subject':<{width}}  trials  seconds  channels   rate  checksum      classes")
    for line in report.subjects:
        classes = "  ".join(f"{name} {count}" for name, count in line.classes.items())
        odd = "".join(f"\n{'':<{width}}  ! {note}" for note in line.notes)
        typer.echo(
            f"{line.subject:<{width}}  {line.trials:>6}  {line.seconds:>7.0f}  {line.channels:>8}"
            f"  {line.rate_hz:>5g}  {line.checksum}  {classes}{odd}"
        )
    totals = "  ".join(f"{name} {count}" for name, count in report.totals.items())
    trials = sum(line.trials for line in report.subjects)
    typer.echo(f"\n{len(report.subjects)} subjects, {trials} trials: {totals}")
    if report.published:
        same = all(report.totals.get(k) == v for k, v in report.published.items())
        published = "  ".join(f"{name} {count}" for name, count in report.published.items())
        typer.echo(f"published: {published}  {'(the same)' if same else '(DIFFERENT)'}")
    for note in report.notes:
        typer.echo(f"note: {note}")
    if report.faults:
        typer.echo(f"\n{len(report.faults)} faults:", err=True)
        for fault in report.faults:
            typer.echo(f"  - {fault}", err=True)


def _parse_options(pairs: list[str] | None, allow_truncated: bool = False) -> dict[str, Any]:
    import tomllib

    options: dict[str, Any] = {"allow_truncated": True} if allow_truncated else {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--option {pair!r}: expected KEY=VALUE, such as task=left_right.")
        try:
            options[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[key.strip()] = text
    return options


def _root_hint(root: Path | None) -> str:
    return f" --root {root}" if root else ""


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on stderr when it is a terminal, and nothing otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[subject]}"),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=None, subject="")
        yield lambda done, total, subject: bar.update(
            task, completed=done, total=total, subject=subject
        )
