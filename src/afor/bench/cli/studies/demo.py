"""The command ``afor demo``: the whole protocol on ten synthetic subjects, in minutes."""

import tomllib
from pathlib import Path

import typer

from afor.bench.cli.studies.run import make_engine, show_outcome, stopped_in_run, train
from afor.bench.cli.studies.selection import cores
from afor.bench.data.catalog import get_dataset
from afor.bench.data.fetching import fetch_files
from afor.bench.data.prepared import open_cache
from afor.bench.store.locations import store_path
from afor.bench.study.schema import Study, load_study, parse_study, study_text
from afor.bench.study.toml_io import updated_toml


def demo(*, jobs: int = 0, people: bool = False) -> None:
    """Compare seven optimizers on ten synthetic subjects, in minutes.

    The folds, the repetitions of validation subjects and early stopping are those of the protocol.

    Args:
        people: Use recordings of ten people of PhysioNet, fetched once (26 MB).

    Example:
        afor demo --jobs 4
    """
    name = "demo-people" if people else "demo"
    study, (toml, _) = load_study(name), study_text(name)
    if people:
        study, toml = _with_people(study, toml, open_cache(None) / "recordings")
    path, workers = store_path(study.name), jobs or cores()
    typer.echo(
        f"{study.description}\n{_attribution(study)}Safe to stop with Ctrl-C; the same command "
        f"continues.\n",
        err=True,
    )
    with stopped_in_run("afor demo --people" if people else "afor demo", path):
        summary = train(study, toml, path, make_engine("", workers, study.threads), workers)
    show_outcome(study, path, summary)


def _with_people(study: Study, toml: str, folder: Path) -> tuple[Study, str]:
    """Fetch the people of a study into a folder; return the study and its TOML with that root."""
    (entry,) = study.datasets
    dataset = get_dataset(entry.use)
    assert dataset.fetch is not None and entry.subjects is not None  # noqa: PT018
    root = folder / entry.use
    typer.echo(f"Fetching what is missing in {root} ...", err=True)
    fetch_files(dataset.fetch, root, entry.subjects, dataset.parse(entry.options))
    content = tomllib.loads(toml)
    content["datasets"][0]["root"] = str(root)
    text = updated_toml(toml, content)
    return parse_study(text), text


def _attribution(study: Study) -> str:
    """Return a line per data set with its licence and what to cite."""
    datasets = [get_dataset(entry.use) for entry in study.datasets]
    if all(dataset.is_synthetic for dataset in datasets):
        return "Data: synthetic subjects, computed here; `afor demo --people` uses recordings.\n"
    return "".join(
        f"Data: {d.info.title}. {d.info.licence}. Cite {d.info.citation}.\n" for d in datasets
    )
