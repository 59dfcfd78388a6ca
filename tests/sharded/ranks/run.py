"""Run scenarios on several ranks.

`python run.py FOLDER WORLD:NAME,NAME,... ...` imports torch once, then starts WORLD processes for
each argument in turn. Each rank runs the named scenarios one after another in one process group and
writes what they return, or the traceback, to FOLDER/WORLD-RANK.json.
"""

import json
import multiprocessing
import sys
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import bad_use
import checkpoints
import compiled
import same_numbers
import torch
import torch.distributed as dist

PATIENCE = timedelta(minutes=5)  # with a rank that has died

SCENARIOS = {
    name: function
    for module in (same_numbers, checkpoints, compiled, bad_use)
    for name, function in vars(module).items()
    if getattr(function, "__module__", None) == module.__name__
}


def work(rank: int, world: int, folder: Path, names: list[str]) -> None:
    """Be one rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting-{world}"
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=world, timeout=PATIENCE
    )
    results = {}
    for name in names:
        began = time.perf_counter()
        try:
            results[name] = {"value": SCENARIOS[name](rank, world, folder)}
        except Exception:  # noqa: BLE001 - the test shows it, and the other scenarios go on
            results[name] = {"error": traceback.format_exc()}
        if rank == 0:
            found = results[name].get("value", "failed")
            text = f"{world} ranks, {name}, {time.perf_counter() - began:.1f} s: {found}"
            print(text, flush=True)
    (folder / f"{world}-{rank}.json").write_text(json.dumps(results))
    if dist.is_initialized():
        dist.destroy_process_group()


def main() -> None:
    folder = Path(sys.argv[1])
    if any("compiled" in argument for argument in sys.argv[2:]):
        torch.compile(torch.neg, backend="aot_eager")(torch.ones(1))  # imports the compiler
    # Forked ranks need not import torch and its compiler again.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    for argument in sys.argv[2:]:
        world, names = argument.split(":")
        ranks = [
            context.Process(target=work, args=(r, int(world), folder, names.split(",")))
            for r in range(int(world))
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()


if __name__ == "__main__":
    main()
