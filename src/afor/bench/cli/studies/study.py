"""The commands ``afor study | plan``: the content of a study, and its runs."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import typer

from afor.bench.cli.results.planning import pilot_sentences
from afor.bench.cli.studies.selection import (
    StudyOptions,
    changed_text,
    cores,
    select_study,
    step_timer,
)
from afor.bench.cli.terminal import print_facts, print_json, print_next
from afor.bench.common.devices import is_available
from afor.bench.common.errors import ConfigError
from afor.bench.common.text import counted
from afor.bench.execution.forecast import (
    Forecast,
    Span,
    describe_search,
    forecast,
)
from afor.bench.execution.run_times import clock
from afor.bench.execution.sources import absent_datasets, expected_sources
from afor.bench.execution.status import remaining_s
from afor.bench.models.input_shape import InputShape
from afor.bench.store.database import open_store
from afor.bench.store.learning_rates import SearchedRates, searched_rates, small_search
from afor.bench.store.locations import store_path
from afor.bench.study.overrides import Overrides
from afor.bench.study.plan import make_plan
from afor.bench.study.planned_runs import RUN_FIELDS, StudyPlan
from afor.bench.study.protocol import pairing_notes, redundant_notes
from afor.bench.study.schema import (
    BackboneEntry,
    Study,
    load_study,
    parse_study,
    preset_names,
    read_toml,
)
from afor.bench.study.toml_io import updated_toml
from afor.bench.training.run_spec import DEFAULT_TRAINER


def study(
    name: str | None = None, *, changes: Overrides, new_name: str = "", as_json: bool = False
) -> None:
    """List the presets, or print a study as TOML to edit.

    Each value of a preset is printed with its place in the paper. The study has a name of its own,
    so that its results do not go to the store of the preset.

    Args:
        name: A preset or a TOML file. [default: list the presets]
        new_name: Name of the printed study, and of its store. [default: my-PRESET; that of a file
            stays]

    Example:
        afor study demo > my-study.toml
    """
    if name is not None:
        text, where = changed_text(name, changes, trust=True)  # only printed
        is_preset = name in preset_names() and not changes.words()
        if new_name or is_preset:
            content = {**read_toml(text, where), "name": new_name or f"my-{name}"}
            text = updated_toml(text, content)
            parse_study(text, where)
        if as_json:
            print_json(parse_study(text, where).model_dump(mode="json"))
            return
        typer.echo(text, nl=False)
        named = ["--name", new_name] if new_name else []
        command = shlex.join(["afor", "study", name, *changes.words(), *named])
        typer.echo(f"Next: {command} > my-study.toml, edit it, afor run my-study.toml", err=True)
        return
    if changes.words():
        raise ConfigError("Name the study to change, such as `afor study ablation --epochs 12`.")
    presets = {preset: load_study(preset).description for preset in preset_names()}
    if as_json:
        print_json(presets, ensure_ascii=False)
        return
    for preset, description in presets.items():
        typer.echo(f"{preset:<16}{description}")
    print_next("afor study demo")


def plan(
    name: str,
    *,
    options: StudyOptions,
    as_json: bool = False,
    jobs: int = 0,
    timing: bool = True,
    pilot: str = "",
    details: bool = False,
) -> None:
    """Show the runs of a study, which are done, and the time left.

    Data sets that are absent are planned as published, so that the size of a study is known
    before its data are there.

    Args:
        timing: Time three steps of each network and optimizer, once on this machine, where no
            finished run shows the time.
        pilot: Say what the study can decide at the noise of these results: a study's name, a store,
            or a .csv, .json or .parquet file.
        details: Also list the methods of each data set and backbone, with rate and time.

    Example:
        afor plan demo --jobs 4
    """
    selected = select_study(name, options)
    planned = selected.study
    path = store_path(planned.name, options.store)
    absent = absent_datasets(planned)
    sources = expected_sources(planned)
    find_rate = searched_rates(options.lr_from or planned.lr_from)
    timer = step_timer()
    search = small_search(planned) if planned.lr_search and find_rate is None else None
    if search is not None and path.exists():
        with open_store(path) as opened, suppress(ConfigError):  # not complete
            find_rate, search = SearchedRates.of(opened, search.name), None
    study_plan = make_plan(planned, sources, find_rate)
    statuses: dict[str, str] = {}
    seconds_left, needs = None, None
    if path.exists():
        with open_store(path) as opened:
            statuses = opened.statuses()
            seconds_left = remaining_s(opened, study_plan.runs)
    searched = describe_search(search, sources, timer, jobs or cores()) if search else ""
    can_be_timed = planned.trainer == DEFAULT_TRAINER and all(
        is_available(device) for device in {run.spec["device"] for run in study_plan.runs}
    )
    if seconds_left is None and timing and can_be_timed:
        needs = forecast(study_plan.runs, sources, timer)
        seconds_left = needs.total.middle
    decisions = pilot_sentences(study_plan, pilot) if pilot else []
    words = [statuses.get(run.key, "open") for run in study_plan.runs]
    counts = {word: words.count(word) for word in ("done", "diverged", "failed", "open")}
    if as_json:
        rows = [
            {
                **{name: getattr(run, name) for name in RUN_FIELDS},
                "lr": run.rate,
                "key": None if run.dataset in absent else run.key,
                "status": word,
            }
            for run, word in zip(study_plan.runs, words, strict=True)
        ]
        summary = {
            "study": planned.name,
            **counts,
            "seconds": seconds_left,
            "absent": sorted(absent),
            "search": searched,
            "needs": _forecast_content(needs) if needs else None,
            "bundles": [
                {"dataset": dataset, "backbone": backbone, "reason": bundling.reason}
                for (dataset, backbone), bundling in study_plan.bundling.items()
            ],
            "runs": rows,
        }
        summary |= {"decides": decisions} if pilot else {}
        print_json(summary, indent=None)
        return
    facts = [("search", f"the learning rate is searched first: {searched}")] if searched else []
    if counts["open"]:
        workers = jobs or cores()
        left = "not known before the first run"
        if seconds_left is not None:
            left = f"about {clock(seconds_left / workers)} with {workers} at once"
        if needs is not None:
            left += f"; on one core {describe_span(needs.total)}: runs may stop early"
        facts.append(("time", left))
    if needs is not None:
        prepared, stored = map(describe_bytes, (needs.prepared_bytes, needs.results_bytes))
        facts.append(("disk", f"{prepared} of prepared trials, {stored} of results"))
        if needs.worker_bytes:
            facts.append(("memory", f"about {describe_bytes(needs.worker_bytes)} for each worker"))
    facts += _data_facts(study_plan, absent)
    facts += _condition_facts(planned, study_plan, needs) if details else []
    redundant = redundant_notes(planned, partial(_redundant, study_plan) if can_be_timed else None)
    facts += [("note", sentence) for sentence in [*pairing_notes(planned), *redundant]]
    facts += [("decides", sentence) for sentence in decisions]
    states = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    print_facts(f"{planned.name}: {counted(len(study_plan.runs), 'run')}: {states}", facts)
    if counts["failed"]:
        print_next(f"afor store failures {path}")
    elif counts["open"]:
        workers_asked = ["--jobs", str(jobs)] if jobs else []
        print_next(shlex.join(["afor", "run", name, *selected.words, *workers_asked]))
    else:
        print_next(f"afor judge {path}")


def _redundant(study_plan: StudyPlan, entry: BackboneEntry) -> Sequence[str]:
    """Find the tensors of a network of the user's own that cannot change what it computes."""
    from afor.bench.models.redundant import redundant_tensors
    from afor.bench.models.registry import BACKBONES, build_backbone

    if entry.use in BACKBONES:
        return ()
    shape = InputShape.of(next(iter(study_plan.sources.values())))
    try:
        return redundant_tensors(lambda: build_backbone(entry.use, shape, **entry.settings), shape)
    except (NotImplementedError, RuntimeError):  # a network that does not take float64
        return ()


def _forecast_content(needs: Forecast) -> dict[str, Any]:
    """Return a forecast for programs; times in seconds of one worker."""
    sizes = {k: v for k, v in asdict(needs).items() if k != "by_condition"}
    rows = [
        {"dataset": dataset, "backbone": backbone, "method": method, **asdict(row)}
        for (dataset, backbone, method), row in needs.by_condition.items()
    ]
    return {"conditions": rows, "total": asdict(needs.total), **sizes}


def _data_facts(
    study_plan: StudyPlan, absent: Mapping[str, Exception]
) -> Iterator[tuple[str, str]]:
    """Yield the subjects, folds and windows of each data set, and why it is absent."""
    for title, manifest in study_plan.manifests.items():
        first = manifest.splits[0]
        sizes = f"{len(first.train)} / {len(first.validation)} / {len(first.test)}"
        yield (
            title,
            f"{len(manifest.subjects)} subjects, {manifest.folds} folds, {sizes} to train / "
            f"validate / test; {len(study_plan.sources[title])} windows",
        )
        if title in absent:
            reason = str(absent[title]).partition(". ")[0]
            yield "", f"absent, planned as published: {reason}. `afor data list` says more"


def _condition_facts(
    study: Study, study_plan: StudyPlan, needs: Forecast | None
) -> Iterator[tuple[str, str]]:
    """Yield each data set, backbone and method, and what is trained together."""
    # The rate of a condition's first run; a search has several.
    rates = {run.condition: run.rate for run in reversed(study_plan.runs)}
    for row in study_plan.expected():
        condition = (row.dataset, row.backbone, row.method)
        time = f", {describe_span(needs.by_condition[condition])}" if needs else ""
        yield (
            "runs",
            f"{' × '.join(condition)}: "
            f"{_count(row.folds, study_plan.manifests[row.dataset].folds, 'fold')} × "
            f"{_count(row.repetitions, study.protocol.repetitions, 'repetition')}, "
            f"lr {rates[condition]:g}{time}",
        )
    for (dataset, backbone), bundling in study_plan.bundling.items():
        yield "bundles", f"{dataset} × {backbone}: {bundling.sentence()}"


def _count(selected: int, total: int, noun: str) -> str:
    """Say how many there are, and of how many when the study takes only some.

    >>> _count(4, 4, "fold"), _count(1, 4, "fold"), _count(1, 1, "repetition")
    ('4 folds', '1 of 4 folds', '1 repetition')
    """
    nouns = noun if total == 1 else f"{noun}s"
    return f"{total} {nouns}" if selected == total else f"{selected} of {total} {nouns}"


def describe_span(span: Span) -> str:
    """Return a time of one core with its range.

    >>> describe_span(Span(3600, 7200, 36000)), describe_span(Span(60, 60, 60))
    ('2 core-hours (1 to 10)', '1 min 00 s')
    >>> describe_span(Span(20, 60, 600))
    '1 min 00 s (20 s to 10 min 00 s)'
    """
    if span.middle < 3600:
        ends = f" ({clock(span.low)} to {clock(span.high)})" if span.low != span.high else ""
        return f"{clock(span.middle)}{ends}"
    low, middle, high = (_hours(seconds) for seconds in (span.low, span.middle, span.high))
    return f"{middle} core-hours" + (f" ({low} to {high})" if low != high else "")


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}".replace(",", " ") if hours >= 100 else f"{hours:.2g}"


def describe_bytes(size: float) -> str:
    """Return a size in GB or MB.

    >>> describe_bytes(1.26e9), describe_bytes(3e5)
    ('1.3 GB', '0.3 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
