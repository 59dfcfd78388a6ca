import subprocess
import sys
from pathlib import Path

import pytest
import torch

import afor.bench
from afor.bench.common.seeding import derive_seed, derive_substep, isolated, seed_torch


def test_a_seed_is_the_same_in_every_process_and_version() -> None:
    assert derive_seed(0, "deap", 3, 1, "weights") == 2862299564799530210
    code = (
        "from afor.bench.common.seeding import derive_seed; "
        "print(derive_seed(0, 'deap', 3, 1, 'weights'))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) == derive_seed(0, "deap", 3, 1, "weights")


def test_every_part_of_the_key_changes_the_seed() -> None:
    base = (0, "deap", 3, 1, "weights")
    others = [
        (1, "deap", 3, 1, "weights"),
        (0, "bci2a", 3, 1, "weights"),
        (0, "deap", 4, 1, "weights"),
        (0, "deap", 3, 2, "weights"),
        (0, "deap", 1, 3, "weights"),
        (0, "deap", None, 1, "weights"),
        (0, "deap", 3, 1, "batches"),
    ]
    assert len({derive_seed(*key) for key in [base, *others]}) == len(others) + 1


def test_seeds_fit_torch_and_numpy() -> None:
    seeds = [derive_seed(s, "x", None, None, "folds") for s in range(200)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len({derive_substep(seeds[0], step) for step in range(200)}) == 200


def test_an_unknown_purpose_is_refused() -> None:
    with pytest.raises(ValueError, match="one of folds, validation"):
        derive_seed(0, "deap", 0, 0, "optimizer")


def test_an_isolated_block_draws_its_own_numbers_and_disturbs_none() -> None:
    seed_torch(1)
    expected = torch.rand(3)
    seed_torch(1)
    with isolated(9, torch.device("cpu")):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with isolated(9, torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)


def test_an_isolated_block_puts_the_generator_of_mps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"mps": 1}
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state["mps"])
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda value: state.update(mps=value))
    with isolated(9, torch.device("mps")):
        state["mps"] = 2
    assert state["mps"] == 1


def test_torch_is_seeded_in_one_place_only() -> None:
    package = Path(afor.bench.__file__).parent
    seeding = [
        path.name
        for path in package.rglob("*.py")
        if "torch.manual_seed" in path.read_text(encoding="utf-8")
    ]
    assert seeding == ["seeding.py"]
