"""The commands ``afor data list | get | check | import | stand-in | cache``."""

import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from afor.bench.cli.lazy import add_command
from afor.bench.cli.printing import progress_bar
from afor.bench.cli.terminal import print_facts, print_json, print_next
from afor.bench.common.errors import AbsentError, ConfigError, DataError
from afor.bench.common.files import write_atomically
from afor.bench.common.module_search import look_beside
from afor.bench.common.text import counted
from afor.bench.data.catalog import NAMES, get_dataset
from afor.bench.data.dataset import STAND_IN_MARK
from afor.bench.data.datasets.recordings import DEFAULT_TRIAL_S
from afor.bench.data.fetching import fetch_files, named_subjects
from afor.bench.data.inspection.check import CheckReport, balance_warning, check_dataset
from afor.bench.data.inspection.page import data_page
from afor.bench.data.inspection.survey import Survey, folds_of, survey_folder, try_proposal
from afor.bench.data.loading import default_root
from afor.bench.data.prepared import open_cache
from afor.bench.data.stand_ins import write_stand_in
from afor.bench.store.learning_rates import SMALL_GRID, small_search
from afor.bench.study.overrides import key_value
from afor.bench.study.schema import parse_study
from afor.bench.study.toml_io import toml_text

MAX_SHOWN = 20  # subjects or events that a line lists
LONG_WINDOW_S = 10.0


def list_datasets(*, as_json: bool = False) -> None:
    """List the data sets: content, licence, source, and whether the files are here.

    Example:
        afor data list
    """
    entries = []
    for name in NAMES:
        root, dataset = default_root(name), get_dataset(name)
        here = str(root) if root.is_dir() else ""
        entries.append(
            {**asdict(dataset.info), "found": here if dataset.needs_root else "computed"}
        )
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        labels = (
            ("task", "task"), ("shape", "shape"), ("paper_windows", "windows"),
            ("licence", "licence"), ("where", "get it"), ("steps", "how"),
            ("layout", "layout"), ("citation", "cite"),
        )  # fmt: skip
        facts = [(label, str(entry[key])) for key, label in labels if entry[key]]
        found = entry["found"] or f"no (looked in {default_root(str(entry['name']))})"
        print_facts(f"{entry['name']}  {entry['title']}", [*facts, ("found", str(found))])
    typer.echo("moabb:<Name>  any data set of MOABB, such as moabb:BNCI2014_001")
    typer.echo("module:function  a function of yours that returns a Recording")
    print_next("afor data check NAME --root FOLDER")


def get(
    name: Annotated[str, NAMES],
    *,
    subject: list[str] | None = None,
    root: Path | None = None,
    option: list[str] | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> None:
    """Fetch a public data set: size, licence and citation first, then the files that are missing.

    Every file is checked against its published checksum. A transfer that breaks off goes on where
    it stopped, also by the same command later. Data sets that need an agreement are described.

    Args:
        name: The data set: {values}, moabb:<Name> or module:function.
        subject: Fetch only this subject, or a range such as 1-10; repeatable.
        root: Folder of the data set's files. [default: NAME in $AFOR_DATA or ./data]
        dry_run: Say what would be fetched and stop.

    Example:
        afor data get physionet_mi --subject 1-10
    """
    dataset = get_dataset(name)
    info, settings = dataset.info, dataset.parse(_parse_options(option))
    if dataset.fetch is None:
        if not dataset.needs_root and not info.steps:
            raise ConfigError(f"{name} needs no files.")
        raise AbsentError(
            f"{info.title} cannot be fetched by a program. Licence: {info.licence}. Page: "
            f"{info.where}. {info.steps or 'It is your own data'}; expected layout: {info.layout}."
        )
    folder = root or default_root(info.name)
    left_out = dataset.excluded(settings)
    subjects = [s for s in info.subjects if s not in left_out]
    if subject:
        subjects = named_subjects(subject, info.subjects)
    files = dataset.fetch.files(folder, subjects, settings)
    missing = [file for file in files if not file.is_whole(folder)]
    total = sum(file.megabytes for file in missing)
    summary = {
        "dataset": info.name,
        "root": str(folder),
        "subjects": len(subjects),
        "files": len(files),
        "missing": len(missing),
        "megabytes": round(total, 1),
        "licence": info.licence,
        "citation": info.citation,
    }
    if not as_json:
        typer.echo(
            f"{info.title}: {len(subjects)} subjects, {len(files)} files, {len(missing)} of them "
            f"to fetch, about {total:.0f} MB, into {folder}\nlicence  {info.licence}\n"
            f"cite     {info.citation}\nfrom     {info.where}"
        )
    if not dry_run and missing:
        with progress_bar(f"Fetching {info.name}") as progress:
            fetched = fetch_files(dataset.fetch, folder, subjects, settings, progress)
        summary["missing"] = len(files) - sum(file.is_whole(folder) for file in files)
        if not as_json:
            typer.echo(f"{len(fetched)} files fetched, all {len(files)} are here")
    if as_json:
        print_json(summary)
    print_next(f"afor data check {info.name}{f' --root {root}' if root else ''}")


def check(
    name: Annotated[str, NAMES],
    *,
    root: Path | None = None,
    option: list[str] | None = None,
    subject: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Check the recordings of every subject and list the faults.

    Prints one line per subject with its classes and anything unusual, then the totals and the
    amplitude of each channel. Warns of a wrong unit, of flat and duplicate channels, of channels
    that are not EEG and of unbalanced classes. The exit code is 3 if there are faults.

    Args:
        name: The data set: {values}, moabb:<Name> or module:function.
        root: Folder of the data set's files. [default: NAME in $AFOR_DATA or ./data]
        subject: Use only this subject; repeatable.

    Example:
        afor data check bci2a --root data/bci2a
    """
    look_beside(Path.cwd() / name)  # a module of one's own in the current folder
    with progress_bar(f"Checking {name}") as progress:
        report = check_dataset(
            name,
            root,
            options=_parse_options(option),
            subjects=subject,
            progress=progress,
        )
    if as_json:
        print_json(asdict(report))
    else:
        _print_report(report)
    if report.faults:
        raise typer.Exit(code=3)
    make = f"data import {root}" if root else f"study demo --dataset {name}"
    print_next(f"afor {make} > mine.toml")


def stand_in(
    name: Literal["deap", "bci2a", "isruc"],
    root: Path,
    *,
    subject: list[str] | None = None,
    trials: int = 0,
) -> None:
    """Write synthetic recordings in the file format of a data set, to try a study without data.

    Args:
        name: The data set.
        root: The folder to create.
        subject: Use only this subject; repeatable.
        trials: Number of trials of a subject (DEAP, at most 40), a session (BCI IV 2a) or a night
            (ISRUC); 0 writes as many as the real data has.

    Example:
        afor data stand-in isruc data/isruc --subject 1 --trials 20
    """
    if root.exists() and any(root.iterdir()) and not (root / STAND_IN_MARK).exists():
        raise ConfigError(f"{root} is not empty; a stand-in is never written beside other files.")
    files = write_stand_in(name, root, subject, trials=trials)
    typer.echo(f"{len(files)} files in {root}: synthetic, in the format of {name}")
    print_next(f"afor data check {name} --root {root}")


def import_folder(root: Path, *, report: Path | None = None) -> None:
    """Look at a folder of recordings and print a study for it, as TOML.

    What was found is in the comments of the study. The folder is then read as the study will read
    it: if that fails, the reason is printed and the exit code is 3.

    Args:
        root: The folder of your recordings.
        report: Also write a page about the data as HTML: classes, amplitudes, spectra.

    Example:
        afor data import recordings > mine.toml
    """
    survey = survey_folder(root)
    with progress_bar(f"Reading {root}") as progress:
        source, problem = try_proposal(survey, None, progress)
    findings = _findings(survey)
    if source is not None:
        counts = np.bincount(source.labels, minlength=source.n_classes) // source.windows_per_trial
        named = dict(zip(source.class_names, counts.tolist(), strict=True))
        findings.append(f"trials: {', '.join(f'{name} {count}' for name, count in named.items())}")
        if warning := balance_warning(named):
            findings.append(warning)
        seconds = source.window_samples / source.rate_hz
        if survey.use == "folder" and seconds > LONG_WINDOW_S:
            samples = round(DEFAULT_TRIAL_S * source.rate_hz)
            findings.append(
                f"each trial of {seconds:g} s is one window; the option window_samples = {samples} "
                f"cuts windows of {DEFAULT_TRIAL_S:g} s, which train faster"
            )
    if report is not None:
        page = data_page(f"The data in {root}", findings, source, problem)
        write_atomically(report, page.encode())
    proposed = _proposed_study(survey, root)
    if source is not None and not problem:
        # Here: they import torch, which no other command of this module needs.
        from afor.bench.execution.forecast import StepTimer, describe_search

        search = small_search(parse_study(proposed))
        words = describe_search(search, {search.datasets[0].name: source}, StepTimer())
        findings.append(f"the learning rate is searched first: {words} on one core")
        findings.append("afor run mine.toml --lr 1e-3 takes this rate without a search")
    typer.echo("\n".join(f"# {line}".rstrip() for line in findings))
    typer.echo(proposed, nl=False)
    if problem:
        raise DataError(f"This study cannot be planned yet: {problem}")
    saved = "save this as mine.toml, then afor run mine.toml"
    print_next(saved if sys.stdout.isatty() else "afor run FILE, with the name of the new file")


def cache(name: list[str] | None = None, *, clear: bool = False) -> None:
    """List the copies of recordings in the cache, or delete them.

    Prepared trials are copies of people's EEG. A deleted one is made again when it is needed.

    Args:
        name: Folders of the cache, such as deap; none: all.
        clear: Delete these copies.

    Example:
        afor data cache --clear
    """
    root = open_cache(None)
    folders = [folder.name for folder in sorted(root.iterdir()) if folder.is_dir()]
    if unknown := sorted(set(name or ()).difference(folders)):
        raise ConfigError(
            f"The cache has no folder {', '.join(unknown)}. It has {', '.join(folders) or 'none'}."
        )
    typer.echo(f"{root}{'' if folders else ': empty'}")
    for folder in name or folders:
        files = [path for path in (root / folder).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        if clear:
            shutil.rmtree(root / folder)
        note = "  deleted" if clear else ""
        typer.echo(f"{size / 1e6:>10.1f} MB  {counted(len(files), 'file'):>12}  {folder}{note}")


def _findings(survey: Survey) -> list[str]:
    """Describe what a folder holds, in lines."""
    names = list(survey.subjects)
    shown = ", ".join(names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
    n_files = sum(survey.subjects.values())
    files = f", {n_files} files" if n_files else ""
    lines = [
        f'{survey.root}: {len(names)} subjects{files}, read as "{survey.use}"',
        f"subjects: {shown}",
    ]
    if survey.tasks:
        lines.append(f"tasks: {', '.join(survey.tasks)}")
    if survey.sessions:
        lines.append(f"sessions: {', '.join(survey.sessions)}; all of a subject stay together")
    if survey.first:
        lines += [
            f"the first file, {survey.first}: {survey.seconds:.0f} s at {survey.rate_hz:g} Hz, "
            f"typical SD {survey.typical_uv:.3g} µV",
            f"  EEG: {len(survey.channels)} channels: {', '.join(survey.channels)}",
        ]
        if survey.other_channels:
            lines.append(f"  left out, not EEG by type or name: {', '.join(survey.other_channels)}")
        counts = ", ".join(f"{label} {n}" for label, n in list(survey.events.items())[:MAX_SHOWN])
        lines.append(f"events of all files, from {survey.events_from}: {counts or 'none'}")
    if survey.has_condition_per_file:
        where = "tasks" if survey.use == "bids" else "the names of the files"
        lines.append(
            f"conditions in {where}, each of every subject: {', '.join(survey.conditions)}"
        )
    if survey.scale != 1.0:
        lines.append(f"the unit seems wrong: the study multiplies the signal by {survey.scale:g}")
    return lines + list(survey.notes)


def _proposed_study(survey: Survey, root: Path) -> str:
    """Return the TOML of a study to start from."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", root.resolve().name).lstrip("_.-") or "mine"
    options = {"folds": folds_of(survey), "options": survey.options()}
    dataset = {
        "name": name,
        "use": survey.use,
        "root": str(root.resolve()),
        **{key: value for key, value in options.items() if value},
    }
    content = {
        "name": f"{name[:60]}-study",
        "description": f"Optimizers on {name}.",
        "lr_search": SMALL_GRID,
        "backbones": ["eegnet"],
        "optimizers": [
            {"name": "adam"},
            {"name": "adam_seed_1", "use": "adam", "seed": 1},
            {"name": "adamw"},
            {"name": "afor"},
        ],
        "training": {"max_epochs": 60, "patience": 10, "batch_size": 32},
        "protocol": {"repetitions": 2},
        "datasets": [dataset],
    }
    return toml_text(content)


def _print_report(report: CheckReport) -> None:
    width = max([7, *(len(line.subject) for line in report.subjects)])
    typer.echo(f"{'subject':<{width}}  trials  seconds  channels   rate  checksum      classes")
    for line in report.subjects:
        classes = "  ".join(f"{name} {count}" for name, count in line.classes.items())
        odd = "".join(
            f"\n{'':<{width}}  ! {note}"
            for note in (*line.notes, *(f"warning: {warning}" for warning in line.warnings))
        )
        typer.echo(
            f"{line.subject:<{width}}  {line.trials:>6}  {line.seconds:>7.0f}  {line.channels:>8}"
            f"  {line.rate_hz:>5g}  {line.checksum}  {classes}{odd}"
        )
    totals = "  ".join(f"{name} {count}" for name, count in report.totals.items())
    trials = sum(line.trials for line in report.subjects)
    typer.echo(f"\n{len(report.subjects)} subjects, {trials} trials: {totals}")
    if report.amplitudes:
        shown = "  ".join(f"{name} {sd:.3g}" for name, sd in report.amplitudes.items())
        typer.echo(f"amplitude, the SD within a trial in µV, median over subjects: {shown}")
    if report.published:
        same = all(report.totals.get(k) == v for k, v in report.published.items())
        published = "  ".join(f"{name} {count}" for name, count in report.published.items())
        typer.echo(f"published: {published}  {'(the same)' if same else '(DIFFERENT)'}")
    for note in report.notes:
        typer.echo(f"note: {note}")
    if report.faults:
        typer.echo(f"\n{counted(len(report.faults), 'fault')}:", err=True)
        for fault in report.faults:
            typer.echo(f"  - {fault}", err=True)


def _parse_options(pairs: list[str] | None) -> dict[str, Any]:
    """Return the options of KEY=VALUE pairs."""
    return dict(key_value("--option", pair) for pair in pairs or ())


data = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Find, fetch, check and import data sets."
)
add_command(data, "list", list_datasets)
add_command(data, "get", get)
add_command(data, "check", check)
add_command(data, "import", import_folder)
add_command(data, "stand-in", stand_in)
add_command(data, "cache", cache)
