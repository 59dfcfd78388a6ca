"""Speed of AFOR against the alternatives, as ratios: contenders take turns in one process.

python benchmarks/speed.py                 everything, on an idle machine
python benchmarks/speed.py --quick         seconds, to see that it works
python benchmarks/speed.py --workload eegnet --workload train-deap --threads 1
python benchmarks/speed.py --check         only what the project's targets need, five minutes; exit
                                           code 1 if one is missed
python benchmarks/speed.py --processor-time   on a machine that others use meanwhile
python benchmarks/speed.py --from bench-results/speed.json --markdown table.md
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from contenders import CONTENDERS, YARDSTICK
from measure import (
    SCALING_CONTENDERS,
    available_threads,
    copy_gb_s,
    measure_set,
    measure_training,
    scaling_workload,
)
from results import Bystanders, Record, Results, describe_machine, join
from tables import render, render_targets
from targets import judge, needed_contenders
from workloads import TRAININGS, WORKLOADS

from afor.bench.analyses.cost.timing import Effort

OTHERS = ("scaling", "copy")
NAMES = (*WORKLOADS, *TRAININGS, *OTHERS)
QUICK_NAMES = ("eegnet", "scaling", "copy")
DECADES = range(3, 9)  # of the scaling curve: 10^3 to 10^8 parameters

SMALL = Effort(block_s=0.01, rounds=25, budget_s=10.0, max_rounds=80)
MEDIUM = Effort(block_s=0.0, rounds=9, budget_s=2.0, max_rounds=15)
LARGE = Effort(block_s=0.0, rounds=5, budget_s=4.0, max_rounds=9)
TRAIN = Effort(block_s=0.0, rounds=15, budget_s=8.0, max_rounds=40)
QUICK = Effort(block_s=0.0005, rounds=3, budget_s=0.0, max_rounds=3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or load, then print, save and judge."""
    options = _parse(arguments)
    runs = join(map(Results.load, options.source)) if options.source else [_measure(options)]
    for results in runs:
        print(render(results))
        if options.check:
            print(render_targets(results))
    if options.markdown:
        tables = (f"{render(results)}\n{render_targets(results)}\n" for results in runs)
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text("\n".join([f"{_origin(runs[0])}\n", *tables]))
    if options.plots:
        from plots import draw

        draw(runs[0], options.plots)
    files = options.source or [options.json]
    _say(f"Results: {' '.join(map(str, files))}. Next: --from that file --check")
    verdicts = [verdict for results in runs for verdict in judge(results)]
    missed = any(verdict.word == "NOT REACHED" for verdict in verdicts)
    return 1 if options.check and missed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="few rounds of the smallest workloads")
    add("--workload", action="append", choices=NAMES, help="only these (repeat the option)")
    add("--contender", action="append", choices=CONTENDERS, help="only these, and the yardstick")
    add("--threads", type=int, nargs="+", default=[1, 2], help="thread counts (default: 1 2)")
    add("--json", type=Path, default=Path("bench-results/speed.json"), help="where results go")
    add("--markdown", type=Path, help="also write the tables to this file")
    add("--plots", type=Path, default=Path("bench-results"), help="folder of the pictures")
    add(
        "--check",
        action="store_true",
        help="print the targets, exit code 1 if one is missed; without --contender, measure only "
        "what they need",
    )
    add(
        "--processor-time",
        action="store_true",
        help="count the processor time of all threads, not wall time: what others run on the "
        "machine changes it less (with OMP_WAIT_POLICY=passive, so that waiting does not count)",
    )
    add(
        "--from",
        dest="source",
        type=Path,
        nargs="+",
        help="show results of earlier runs, measure nothing; runs with one instruction set are "
        "put together, and the pictures are of the first",
    )
    options = parser.parse_args(arguments)
    options.only_needed = options.check and not options.contender
    if options.workload is None:
        options.workload = QUICK_NAMES if options.quick else NAMES
    names = set(options.contender or CONTENDERS)
    if options.quick and options.contender is None:
        names.remove("afor-compiled")  # compiling takes longer than all the rest
    options.contender = {*names, YARDSTICK}
    return options


def _contenders(options: argparse.Namespace, workload: str) -> list[str]:
    """Return who is timed on a workload, in the order of the tables; empty leaves it out."""
    names = options.contender if workload in options.workload else set()
    if options.only_needed:
        names = names & needed_contenders(workload)
    return [name for name in CONTENDERS if name in names]


def _measure(options: argparse.Namespace) -> Results:
    results = Results(describe_machine())
    results.machine["clock"] = "processor" if options.processor_time else "wall"
    threads = available_threads(options.threads)
    skipped = set(options.threads) - set(threads)
    if skipped or not threads:
        _say(f"Fewer cores than threads: {sorted(skipped)} left out.")
    began, bystanders = time.perf_counter(), Bystanders()
    if "copy" in options.workload:
        _copies(results, threads, quick=options.quick)
    for record in _records(options, threads):
        results.records.append(record)
        if record.missing:
            _say(f"  {record.label}: {record.missing}")
        results.save(options.json)  # what is measured stays, whatever ends the run
    results.machine["cores_used_by_others"] = bystanders.cores()
    results.machine["quick"] = options.quick
    results.save(options.json)
    _say(f"Done in {time.perf_counter() - began:.0f} s.")
    return results


def _records(options: argparse.Namespace, threads: Sequence[int]) -> Iterator[Record]:
    quick: bool = options.quick
    clock = time.process_time_ns if options.processor_time else time.perf_counter_ns
    for name, workload in WORKLOADS.items():
        names = _contenders(options, name)
        effort = SMALL if not workload.is_large else MEDIUM
        effort = LARGE if workload.parameters > 50_000_000 else effort
        only_kept = workload.is_large or options.only_needed
        for count in threads if names else ():
            for gradients in ("kept",) if only_kept else ("kept", "fresh"):
                _say(f"{workload.title}, threads: {count}, gradients {gradients}")
                yield from measure_set(
                    workload, count, gradients, names, QUICK if quick else effort, clock
                )
    for name, training in TRAININGS.items():
        names = _contenders(options, name)
        for count in threads if names else ():
            _say(f"{training.title}, threads: {count}")
            yield from measure_training(training, count, names, QUICK if quick else TRAIN, clock)
    if "scaling" in options.workload and not options.only_needed:
        names = [name for name in SCALING_CONTENDERS if name in options.contender]
        for decade in DECADES[:3] if quick else DECADES:
            workload = scaling_workload(10**decade)
            effort = LARGE if decade > 7 else MEDIUM if decade > 6 else SMALL
            effort = replace(effort, budget_s=3.0)
            _say(f"{workload.title}, threads: {threads[0]}")
            effort = QUICK if quick else effort
            yield from measure_set(workload, threads[0], "kept", names, effort, clock)


def _copies(results: Results, threads: Sequence[int], *, quick: bool) -> None:
    import torch

    for count in threads:
        _say(f"copy of memory, threads: {count}")
        torch.set_num_threads(count)
        effort = QUICK if quick else MEDIUM
        results.copy_gb_s[count] = copy_gb_s(effort, megabytes=40 if quick else 400)


def _origin(results: Results) -> str:
    """Return the remark with which the written page begins."""
    quick = " --quick" if results.machine.get("quick") else ""
    return f"<!-- Written by `python benchmarks/speed.py{quick} --markdown`; do not edit. -->"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    sys.exit(main())
