"""Write the tables, figures and files of the page on open data from its finished stores.

    python studies/open/results.py results docs/results/open
    python studies/open/results.py docs/results/open docs/results/open

The first folder holds the stores (`open-eyes.db`, ...) or the runs that were exported from them
(`eyes.csv`, ...). What is not there is left out. A task may be trained one network at a time
(`afor run studies/open/stress.toml --backbone eegnet_authors`): each network then has a study, a
store and a file of its own (`open-stress-eegnet_authors.db`, `stress-eegnet_authors.csv`). An
analysis (`ablation`, ...) is in a file of its own or in that of the task eyes.
"""

import subprocess
import sys
from collections.abc import Iterable
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
from afor.bench.stats.paper_numbers import published, published_results
from afor.bench.stats.results import Results
from afor.bench.store.files import load_results
from afor.bench.study.schema import load_study, paper_backbone

# The task here, and the paper's data set that it stands for.
TASKS = {"stress": "deap", "imagery": "bci2a", "eyes": "isruc"}
NETWORKS = {"eegnet": "EEGNet", "acrnn": "ACRNN", "nsal_dgat": "NSAL-DGAT", "hslt": "HSLT"}
PAPER_NAMES = {"deap": "DEAP", "bci2a": "BCI IV 2a", "isruc": "ISRUC"}
ANALYSES = ("ablation", "sensitivity", "convergence")
PLANES = ("random", "pca", "filter")
POINTS = 100


def runs_in(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the files that have runs, by the names of their studies without `open-`.

    Exported runs come before stores.
    """
    found = {}
    for name in names:
        for path in (folder / f"{name}.csv", folder / f"open-{name}.db"):
            if path.is_file():
                found.setdefault(name, path)
    return found


def compared_in(folder: Path) -> dict[str, Path]:
    """Return the files of the tasks, whole or one per network."""
    single = [f"{task}-{network}_authors" for task in TASKS for network in NETWORKS]
    return runs_in(folder, [*TASKS, *single])


def commands(source: Path, folder: Path) -> list[list[str]]:
    """Return the commands of `afor` that write the files, one per file."""
    runs = compared_in(source)
    names = [str(path) for path in runs.values()]
    others = runs_in(source, ["rates", *ANALYSES, "matched", "unnormalized"])
    studies = [word for task in runs for word in ("--study", f"open-{task}")]
    both = ["--metric", "accuracy", "--metric", "weighted_f1"]
    tables = [
        ["table", "main", *names, *studies, *both],
        ["table", "comparisons", *names, *studies, "--metric", "accuracy"],
        ["table", "ranks", *names, *studies],
        *([["table", "pooled", *names, *studies, "--method", "afor"]] if len(names) > 1 else []),
    ]
    for path in dict.fromkeys([*runs.values(), *others.values()]):
        tables += analyses(path)
    planes = [folder / f"landscape-{directions}.json" for directions in PLANES]
    return [
        *(
            ["export", str(path), "--output", str(folder / f"{name}.csv")]
            for name, path in {**runs, **others}.items()
            if _is_store(path)
        ),
        *([*words, "--output", str(folder / _file(words))] for words in tables),
        [*tables[0], "--output", str(folder / "main.tex")],
        [*tables[1], "--output", str(folder / "comparisons.json")],
        ["figure", "gain", *names, *studies, "--output", str(folder / "gain.png")],
        *(
            [kind, "landscape", str(path), "--output", str(folder / f"{path.stem}.{suffix}")]
            for path in planes
            if path.is_file()
            for kind, suffix in (("table", "md"), ("figure", "png"))
        ),
    ]


def analyses(runs: Path) -> list[list[str]]:
    """Return the commands of the paper's analyses whose runs are in a file."""
    found = []
    for study in sorted({run.study for run in load_results([runs])[0]}):
        name = study.removeprefix("open-")
        # The losses of single epochs are in the store alone.
        if name in ANALYSES and (name != "convergence" or _is_store(runs)):
            words = [name, str(runs), "--study", study]
            found += [["table", *words], ["figure", *words]]
        elif name == "unnormalized":
            words = ["main", str(runs), "--study", study, "--metric", "accuracy"]
            found.append(["table", *words])
        elif "-matched-" in study:
            words = [str(runs), "--study", study, "--baseline", "adamw_mean_per_tensor"]
            found.append(["table", "comparisons", *words, "--metric", "accuracy"])
    return found


def _file(words: list[str]) -> str:
    study = words[words.index("--study") + 1]
    name = study[study.index("matched-") :] if "-matched-" in study else words[1]
    name = "unnormalized" if study == "open-unnormalized" else name
    return f"{name}.{'png' if words[0] == 'figure' else 'md'}"


def _is_store(path: Path) -> bool:
    return path.suffix == ".db"


def afor_over_adam(results: Results, metric: str) -> list[Comparison]:
    """Return the comparisons of AFOR with Adam, one per task and network."""
    return [c for c in results.comparisons if c.method == "afor" and c.metric == metric]


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
        lines.append(f"| {label} | {paper:+.2f} | {_points(fmean(gains))} |")
    for metric, name in (("accuracy", "accuracy"), ("weighted_f1", "weighted F1")):
        compared = afor_over_adam(results, metric)
        gains = [c.gain for c in compared]
        paper = claims[f"gain_{metric}"]
        label = f"{name}, mean over {len(gains)} conditions (the paper: 12)"
        lines.append(f"| {label} | {paper['mean']:+.2f} | {_points(fmean(gains))} |")
        lines.append(f"| {name}, highest | {paper['highest']:+.2f} | {_points(max(gains))} |")
    both = [c for metric in ("accuracy", "weighted_f1") for c in afor_over_adam(results, metric)]
    stars, of = claims["significant"]
    found = f"{sum(c.significant for c in both)} of {len(both)}"
    lines.append(f"| the paper's star, of accuracy and weighted F1 | {stars} of {of} | {found} |")
    return "\n".join(lines) + "\n"


def _points(gain: float) -> str:
    return f"{POINTS * gain:+.2f}".replace("-", "−")


def learning_rates() -> str:
    """Return the learning rates of the studies beside those of the paper, as Markdown."""
    paper = published()["learning_rates"]["cells"]
    lines = [
        f"| task (paper) | {' | '.join(NETWORKS.values())} |",
        "|---|" + "---:|" * len(NETWORKS),
    ]
    for task, dataset in TASKS.items():
        rates = load_study(str(Path(__file__).with_name(f"{task}.toml"))).datasets[0].lr
        cells = [f"{rates[f'{name}_authors']:g} ({paper[dataset][name]:g})" for name in NETWORKS]
        lines.append(f"| {task} ({PAPER_NAMES[dataset]}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_beside(results: Results, path: Path) -> None:
    """Draw the gain of AFOR over Adam with its interval, and the paper's gain beside it."""
    compared = afor_over_adam(results, "accuracy")
    with house_style():
        figure, axes = new_figure(6 * len(compared) + 18)
        axis = axes[0, 0]
        for row, c in enumerate(compared):
            low, high = (POINTS * end for end in c.interval)
            axis.barh(row, _paper_gain(c), 0.6, color="#d9d9d9", label="" if row else "the paper")
            axis.plot([low, high], [row, row], color=color_of("afor"))
            label = "" if row else "here, with exact 95 % interval"
            axis.plot(POINTS * c.gain, row, "o", color=color_of("afor"), label=label)
        labels = [f"{c.dataset}, {NETWORKS[paper_backbone(c.backbone)]}" for c in compared]
        name_rows(axis, labels)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_xlabel("accuracy, AFOR − Adam, points")
        legend_below(figure, axis, 2)
        save_figure(figure, path)


def _paper_gain(c: Comparison) -> float:
    """Return the gain that the paper prints for the data set that this task stands for."""
    dataset, network = TASKS[c.dataset], paper_backbone(c.backbone)
    afor, adam = (published_results()[dataset, network, o, "accuracy"] for o in ("afor", "adam"))
    return afor.mean - adam.mean


def main(source: Path, folder: Path) -> None:
    """Write all files; stop at the first command that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    afor = Path(sys.executable).with_name("afor")
    for command in commands(source, folder):
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)
    metrics = ("accuracy", "weighted_f1")
    runs = compared_in(folder)
    studies = [f"open-{task}" for task in runs]
    results = Results.open(list(runs.values()), studies=studies, metrics=metrics)
    (folder / "headline.md").write_text(headline(results), "utf-8")
    (folder / "learning-rates.md").write_text(learning_rates(), "utf-8")
    draw_beside(results, folder / "beside-paper.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
