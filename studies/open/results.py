"""Write the tables, figures and files of the page on open data from its stores.

    python studies/open/results.py results docs/results/open
    python studies/open/results.py docs/results/open docs/results/open

The first folder holds the stores (`open-eyes.db`, ...) or the runs that were exported from them
(`eyes.csv`, ...). What is not there, or not finished, is left out. A task may be trained one
network at a time (`afor run studies/open/stress.toml --backbone eegnet_authors`): each network then
has a study, a store and a file of its own (`open-stress-eegnet_authors.db`,
`stress-eegnet_authors.csv`).
"""

import csv
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from afor.bench.report.figures.style import (
    color_of,
    house_style,
    legend_below,
    name_rows,
    new_figure,
    save_figure,
)
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.design.power import needed_folds
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.paper_numbers import PublishedResult, published, published_results
from afor.bench.stats.results import Results
from afor.bench.store.database import open_store
from afor.bench.store.files import Row, export_rows, write_export
from afor.bench.study.schema import load_study, paper_backbone

# The task here, and the paper's data set that it stands for.
TASKS = {"stress": "deap", "imagery": "bci2a", "eyes": "isruc"}
NETWORKS = {"eegnet": "EEGNet", "acrnn": "ACRNN", "nsal_dgat": "NSAL-DGAT", "hslt": "HSLT"}
PAPER_NAMES = {"deap": "DEAP", "bci2a": "BCI IV 2a", "isruc": "ISRUC"}
OF_TASKS = [*TASKS, *(f"{task}-{network}_authors" for task in TASKS for network in NETWORKS)]
UNNORMALIZED = ["unnormalized", *(f"unnormalized-{network}_authors" for network in NETWORKS)]
MATCHED = [f"matched-{network}" for network in NETWORKS]
OTHERS = ["rates", "ablation", "sensitivity", "convergence", *UNNORMALIZED, *MATCHED]
PLANES = ("random", "pca", "filter")
LOSSES = "convergence-losses.csv"
# Parts of the page that are cut from what a command prints.
PRINTED = {
    "methods.md": "main.md",
    "mean-ranks.md": "ranks.md",
    "at-own-average.md": "matched.md",
    "microvolts.md": "unnormalized.md",
}
POINTS = 100
SECONDS_PER_HOUR = 3600


def export(source: Path, folder: Path) -> None:
    """Write the runs of each finished study of the stores to a file of its own."""
    for path in sorted(source.glob("open-*.db")):
        with open_store(path) as store:
            rows = export_rows(store)
        for name in (*OF_TASKS, *OTHERS):
            of_study = [row for row in rows if row["study"] == f"open-{name}"]
            if of_study and all(row["status"] in ("done", "diverged") for row in of_study):
                write_export(of_study, folder / f"{name}.csv")
                if name == "convergence":
                    export_losses(path, of_study, folder / LOSSES)


def export_losses(path: Path, runs: Sequence[Row], target: Path) -> None:
    """Write the training loss of each epoch, one row per run: files of runs do not hold it."""
    rows = []
    with open_store(path) as store:
        for run in runs:
            finished = store.run(str(run["key"]))
            assert finished is not None
            assert finished.record is not None
            losses = [f"{epoch.train_loss:.6g}" for epoch in finished.record.history]
            rows.append([run["method"], run["fold"], *losses])
    with target.open("w", encoding="utf-8", newline="") as file:
        epochs = range(1, max(map(len, rows)) - 1)
        csv.writer(file, lineterminator="\n").writerows([["method", "fold", *epochs], *rows])


def runs_in(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the files of runs that are there, by the names of their studies without `open-`."""
    return {name: path for name in names if (path := folder / f"{name}.csv").is_file()}


def compared_in(folder: Path) -> dict[str, Path]:
    """Return the files of the tasks: of a whole task if it is there, else one per network."""
    found = runs_in(folder, OF_TASKS)
    return {
        name: path
        for name, path in found.items()
        if name in TASKS or name.split("-")[0] not in found
    }


def named(runs: dict[str, Path]) -> list[str]:
    """Return the arguments of a command that reads these files."""
    return [
        *map(str, runs.values()),
        *(word for name in runs for word in ("--study", f"open-{name}")),
    ]


def commands(folder: Path) -> list[list[str]]:
    """Return the commands of `afor` that write tables and figures from the files of runs."""
    compared = named(compared_in(folder))
    both = ["--metric", "accuracy", "--metric", "weighted_f1"]
    accuracy = ["--metric", "accuracy"]
    made = [
        (["table", "main", *compared, *both], "main.md"),
        (["table", "main", *compared, *both], "main.tex"),
        (["table", "comparisons", *compared, *accuracy], "comparisons.md"),
        (["table", "comparisons", *compared, *accuracy], "comparisons.json"),
        (["table", "ranks", *compared], "ranks.md"),
        (["table", "pooled", *compared, "--method", "afor"], "pooled.md"),
        (["figure", "gain", *compared], "gain.png"),
    ]
    for name in runs_in(folder, ("ablation", "sensitivity")):
        words = [name, *named(runs_in(folder, [name]))]
        made += [(["table", *words], f"{name}.md"), (["figure", *words], f"{name}.png")]
    if matched := runs_in(folder, MATCHED):
        words = [*named(matched), "--baseline", "afor", *accuracy]
        made.append((["table", "comparisons", *words], "matched.md"))
    unnormalized = runs_in(folder, UNNORMALIZED[:1]) or runs_in(folder, UNNORMALIZED)
    if unnormalized:
        made.append((["table", "main", *named(unnormalized), *accuracy], "unnormalized.md"))
    for plane in PLANES:
        path = folder / f"landscape-{plane}.json"
        for kind, suffix in (("table", "md"), ("figure", "png")) if path.is_file() else ():
            made.append(([kind, "landscape", str(path)], f"{path.stem}.{suffix}"))
    return [[*words, "--output", str(folder / name)] for words, name in made]


def convergence(source: Path, folder: Path) -> list[list[str]]:
    """Return the commands for the curves, which are in the store alone."""
    store = source / "open-eyes.db"
    if not store.is_file() or not (folder / LOSSES).is_file():
        return []
    words = ["convergence", str(store), "--study", "open-convergence", "--output"]
    return [
        ["table", *words, f"{folder}/convergence.md"],
        ["figure", *words, f"{folder}/convergence.png"],
    ]


def afor_over_adam(results: Results, metric: str) -> list[Comparison]:
    """Return the comparisons of AFOR with Adam, one per task and network, in the paper's order."""
    found = [c for c in results.comparisons if c.method == "afor" and c.metric == metric]
    tasks, networks = list(TASKS), list(NETWORKS)
    return sorted(
        found, key=lambda c: (tasks.index(c.dataset), networks.index(paper_backbone(c.backbone)))
    )


def conditions(results: Results) -> str:
    """Return AFOR and Adam on each task and network, here and in the paper, as Markdown."""
    lines = [
        "| task | network | Adam | AFOR | AFOR − Adam | 95 % interval | verdict | "
        "folds that would settle 1 point | the paper's AFOR − Adam |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for c in afor_over_adam(results, "accuracy"):
        adam, afor = (fmean(getattr(p, side) for p in c.pairs) for side in ("theirs", "ours"))
        low, high = (_points(end) for end in c.interval)
        ours, theirs = (" *" if s else "" for s in (c.significant, _printed(c, "afor").significant))
        cells = (
            *(c.dataset, NETWORKS[paper_backbone(c.backbone)]),
            *(f"{POINTS * mean:.2f}" for mean in (adam, afor)),
            *(f"{_points(c.gain)}{ours}", f"{low} to {high}", _verdict(c)),
            _folds_to_settle(c),
            f"{_signed(_paper_gain(c))}{theirs}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdict(c: Comparison) -> str:
    if c.decision is Decision.NO_VERDICT:
        return "no verdict: both guess"
    return "equal within 1 point" if c.decision is Decision.EQUIVALENT else str(c.decision)


def _folds_to_settle(c: Comparison) -> str:
    folds = needed_folds(c) if c.decision is Decision.UNDECIDED else None
    if folds is None:
        return "–"
    return " to ".join(str(round(number, 2 - len(str(number)))) for number in folds)


def headline(results: Results) -> str:
    """Return the paper's claims beside what was found here, as Markdown."""
    claims = published()["claims"]
    lines = ["| AFOR − Adam | the paper | here |", "|---|---:|---:|"]
    accuracy = afor_over_adam(results, "accuracy")
    for task, dataset in TASKS.items():
        gains = [c.gain for c in accuracy if c.dataset == task]
        if not gains:
            continue  # not trained yet
        paper = claims["gain_accuracy_by_dataset"][dataset]
        label = f"accuracy, {PAPER_NAMES[dataset]} / {task}, mean over networks"
        lines.append(f"| {label} | {_signed(paper)} | {_points(fmean(gains))} |")
    for metric, name in (("accuracy", "accuracy"), ("weighted_f1", "weighted F1")):
        gains = [c.gain for c in afor_over_adam(results, metric)]
        paper = claims[f"gain_{metric}"]
        label = f"{name}, mean over {len(gains)} conditions"
        lines.append(f"| {label} | {_signed(paper['mean'])} | {_points(fmean(gains))} |")
        lines.append(f"| {name}, highest | {_signed(paper['highest'])} | {_points(max(gains))} |")
    stars, of = claims["significant"]
    ours = [c for c in results.comparisons if c.method == "afor"]
    others = [c for c in results.comparisons if c.method != "afor"]
    printed = [p for p in published_results().values() if p.optimizer not in ("adam", "afor")]
    lines.append(f"| the paper's star, AFOR | {stars} of {of} | {_stars(ours)} |")
    lines.append(f"| the paper's star, the five others | {_stars(printed)} | {_stars(others)} |")
    return "\n".join(lines) + "\n"


def _stars(found: Sequence[Comparison | PublishedResult]) -> str:
    return f"{sum(one.significant for one in found)} of {len(found)}"


def _points(gain: float) -> str:
    return _signed(POINTS * gain + 0.0)


def _signed(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def learning_rates() -> str:
    """Return the learning rates of the studies beside those of the paper, as Markdown."""
    paper = published()["learning_rates"]["cells"]
    lines = [_header("task (paper)")]
    for task, dataset in TASKS.items():
        rates = load_study(str(Path(__file__).with_name(f"{task}.toml"))).datasets[0].lr
        cells = [f"{rates[f'{name}_authors']:g} ({paper[dataset][name]:g})" for name in NETWORKS]
        lines.append(f"| {task} ({PAPER_NAMES[dataset]}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _header(first: str) -> str:
    return f"| {first} | {' | '.join(NETWORKS.values())} |\n|---|{'---:|' * len(NETWORKS)}"


def cost(folder: Path) -> str:
    """Return runs, epochs and hours of training per task and network, as Markdown."""
    rows = []
    for path in compared_in(folder).values():
        with path.open(encoding="utf-8") as file:
            rows += list(csv.DictReader(file))
    lines = [_header("task")]
    hours = 0.0
    for task in TASKS:
        cells = []
        for network in NETWORKS:
            of_pair = [
                (int(row["epochs"]), float(row["elapsed_s"]))
                for row in rows
                if (row["dataset"], paper_backbone(row["backbone"])) == (task, network)
            ]
            spent = sum(seconds for _, seconds in of_pair) / SECONDS_PER_HOUR
            hours += spent
            epochs = fmean(epochs for epochs, _ in of_pair) if of_pair else 0.0
            cells.append(
                f"{len(of_pair)} runs, {epochs:.0f} epochs, {spent:.2f} h" if of_pair else "–"
            )
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\n{len(rows)} runs, {hours:.1f} core-hours.\n"


def retrained(folder: Path) -> str:
    """Return AFOR on eyes as compared, and as trained again with the controls, as Markdown."""
    lines = [
        "| eyes | AFOR as compared | trained again | difference | folds of equal accuracy |",
        "|---|---:|---:|---:|---:|",
    ]
    for network, label in NETWORKS.items():
        found = [
            _afor_by_fold(folder / name, network) for name in ("eyes.csv", f"matched-{network}.csv")
        ]
        first, again = (POINTS * fmean(folds.values()) for folds in found)
        same = sum(accuracy == found[1][fold] for fold, accuracy in found[0].items())
        cells = f"{first:.2f} | {again:.2f} | {_signed(again - first)} | {same} of {len(found[0])}"
        lines.append(f"| {label} | {cells} |")
    return "\n".join(lines) + "\n"


def _afor_by_fold(path: Path, network: str) -> dict[str, float]:
    with path.open(encoding="utf-8") as file:
        return {
            row["fold"]: float(row["accuracy"])
            for row in csv.DictReader(file)
            if (paper_backbone(row["backbone"]), row["method"]) == (network, "afor")
        }


def without_verdicts(page: str) -> str:
    """Return a printed table with its legend, without the verdicts above and the advice below."""
    lines = page.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    kept = (line for line in lines[first:] if "a linear model gets" not in line)
    return "\n".join(kept).rstrip() + "\n"


def fragments(folder: Path) -> dict[str, str]:
    """Return the parts of the page that no command prints, by the names of their files."""
    compared = compared_in(folder)
    results = Results.open(
        list(compared.values()),
        studies=[f"open-{name}" for name in compared],
        metrics=("accuracy", "weighted_f1"),
    )
    return {
        "conditions.md": conditions(results),
        "headline.md": headline(results),
        "learning-rates.md": learning_rates(),
        "cost.md": cost(folder),
        **(
            {"retrained.md": retrained(folder)}
            if len(runs_in(folder, MATCHED)) == len(MATCHED)
            else {}
        ),
        **{
            name: without_verdicts((folder / page).read_text("utf-8"))
            for name, page in PRINTED.items()
            if (folder / page).is_file()
        },
    }


def draw_beside(results: Results, path: Path) -> None:
    """Draw the gain of AFOR over Adam with its interval, and the paper's gain beside it."""
    compared = afor_over_adam(results, "accuracy")
    legend = {
        "the paper": {"color": "#d9d9d9", "marker": "s"},
        "here, with exact 95 % interval": {"color": color_of("afor")},
        "here, but both guess": {"color": color_of("afor"), "markerfacecolor": "white"},
    }
    with house_style():
        figure, axes = new_figure(6 * len(compared) + 18)
        axis = axes[0, 0]
        for row, c in enumerate(compared):
            low, high = (POINTS * end for end in c.interval)
            axis.barh(row, _paper_gain(c), 0.6, color="#d9d9d9")
            axis.plot([low, high], [row, row], color=color_of("afor"))
            fill = "white" if c.is_blind else color_of("afor")
            axis.plot(POINTS * c.gain, row, "o", color=color_of("afor"), markerfacecolor=fill)
        for label, look in legend.items():
            axis.plot([], [], **{"marker": "o", "linestyle": "", **look}, label=label)
        name_rows(axis, [f"{c.dataset}, {NETWORKS[paper_backbone(c.backbone)]}" for c in compared])
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_xlabel("accuracy, AFOR − Adam, points")
        legend_below(figure, axis, 2)
        save_figure(figure, path)


def _paper_gain(c: Comparison) -> float:
    """Return the gain that the paper prints for the data set that this task stands for."""
    return _printed(c, "afor").mean - _printed(c, "adam").mean


def _printed(c: Comparison, optimizer: str) -> PublishedResult:
    key = (TASKS[c.dataset], paper_backbone(c.backbone), optimizer, c.metric)
    return published_results()[key]


def main(source: Path, folder: Path) -> None:
    """Write all files; stop at the first command that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    export(source, folder)
    afor = Path(sys.executable).with_name("afor")
    for command in (*commands(folder), *convergence(source, folder)):
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)
    for name, text in fragments(folder).items():
        (folder / name).write_text(text, "utf-8")
    compared = compared_in(folder)
    draw_beside(
        Results.open(list(compared.values()), studies=[f"open-{name}" for name in compared]),
        folder / "beside-paper.png",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
