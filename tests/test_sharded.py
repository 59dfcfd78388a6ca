"""AFOR on many processes: the same numbers as on one, one small message a step."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from afor.sharded import is_sharded, split_sharded

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch has no gloo",
)

SCRIPT = Path(__file__).with_name("sharded_scenarios.py")
TIMEOUT_S = 150
FLOAT64 = 1e-13  # relative; the sums are added in another order
FLOAT32 = 1e-5


def launch(world: int, folder: Path, steps: int, *names: str) -> list[dict[str, Any]]:
    """Run scenarios in new processes, and return what each rank found."""
    meeting = folder / f"{world}-{names[0]}"
    meeting.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if sys.platform != "linux":
        del environment["GLOO_SOCKET_IFNAME"]
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), str(world), meeting, str(steps), *names],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        for rank in ranks:
            output, _ = rank.communicate(timeout=TIMEOUT_S)
            assert rank.returncode == 0, output
            print(output)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [json.loads((meeting / f"{rank}.json").read_text()) for rank in range(world)]


class Found:
    """What the ranks of one launch found."""

    def __init__(self, ranks: list[dict[str, Any]]) -> None:
        self.ranks = ranks

    def __getitem__(self, name: str) -> list[Any]:
        for rank in self.ranks:
            assert "error" not in rank[name], rank[name]["error"]
        return [rank[name]["value"] for rank in self.ranks]


@pytest.fixture(scope="module", params=[40, pytest.param(160, marks=pytest.mark.slow)])
def steps(request: pytest.FixtureRequest) -> int:
    """Return for how long the runs are compared."""
    return int(request.param)


@pytest.fixture(scope="module")
def folder(steps: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder: Path, steps: int) -> Found:
    names = (
        "fsdp", "distributed_tensors", "partial_gradient", "non_finite", "refused", "replicas",
        "zero_redundancy", "save", "plain_state", "destroyed",
    )  # fmt: skip
    return Found(launch(2, folder, steps, *names))


@pytest.fixture(scope="module")
def four(folder: Path, steps: int, two: Found) -> Found:
    assert two["save"]  # whose checkpoint is loaded here
    return Found(launch(4, folder, steps, "hybrid", "tensor_parallel", "load", "replicas"))


def assert_equal_to_the_whole(row: dict[str, Any], tolerance: float) -> None:
    for name in ("param", "exp_avg_sq", "control", "score", "forgetting"):
        assert row[name] <= tolerance, f"{name}: {row}"
    assert row["spread"] > 1e-4, "all tensors have one beta2: the comparison says nothing"


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("torch.float64", FLOAT64), ("torch.float32", FLOAT32)]
)
def test_fsdp_on_two_ranks_gives_the_numbers_of_one(two, dtype, tolerance) -> None:
    for rank in two["fsdp"]:
        assert_equal_to_the_whole(rank[dtype], tolerance)


def test_a_rank_of_the_fsdp_run_holds_an_empty_shard(two) -> None:
    smallest = [row["smallest_shard"] for rank in two["fsdp"] for row in rank.values()]
    assert min(smallest) == 0


def test_a_step_takes_one_collective_for_all_tensors_and_groups(two) -> None:
    for rank in two["fsdp"]:
        assert [row["counts"] for row in rank.values()] == [[1]] * 2


def test_the_message_is_five_numbers_for_each_tensor_that_is_cut(two) -> None:
    for rank in two["distributed_tensors"]:
        assert rank["sizes"] == [[4 * 5]]


@pytest.mark.parametrize("kind", ["for-loop", "foreach"])
def test_tensors_cut_along_any_dimension_mix_with_plain_ones(two, kind) -> None:
    for rank in two["distributed_tensors"]:
        assert_equal_to_the_whole(rank[kind], FLOAT64)


def test_a_gradient_still_to_be_added_up_is_added_up(two) -> None:
    for rank in two["partial_gradient"]:
        assert rank["param"] <= FLOAT64
        assert rank["control"] <= FLOAT64


def test_a_non_finite_gradient_on_one_rank_spares_the_control_on_all(two) -> None:
    for rank in two["non_finite"]:
        assert rank["held"]
        assert rank["finite"]
    assert [rank["local_finite"] for rank in two["non_finite"]] == [True, False]


@pytest.mark.parametrize("option", ["fused", "differentiable", "variant"])
def test_options_that_do_not_go_with_shards_are_refused(two, option) -> None:
    for rank in two["refused"]:
        assert f"{option}=" in rank[option]
        assert "sharded parameters (DTensor)" in rank[option]
        assert f"leave {option} unset" in rank[option]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("moment", "must be sharded like it, found a plain tensor of shape (4,)"),
        ("partial", "make it Shard or Replicate"),
        ("gradient", "must be a DTensor on the same mesh"),
    ],
)
def test_tensors_that_do_not_go_together_are_named(two, what, words) -> None:
    for rank in two["refused"]:
        assert words in rank[what]


@pytest.mark.parametrize("gone", ["group", "everything"])
def test_a_step_after_the_process_group_has_gone_says_so_and_changes_nothing(two, gone) -> None:
    for rank in two["destroyed"]:
        assert "process group does not exist any more" in rank[gone]
        assert "\n" not in rank[gone]


def test_replicated_and_sharded_dimensions_count_each_element_once(four) -> None:
    for rank in four["hybrid"]:
        assert_equal_to_the_whole(rank, FLOAT64)
        assert rank["counts"] == [1]


def test_a_tensor_parallel_plan_gives_the_numbers_of_one(four) -> None:
    for rank in four["tensor_parallel"]:
        assert_equal_to_the_whole(rank["alone"], FLOAT64)
        assert rank["alone"]["counts"] == [1]


def test_a_tensor_parallel_plan_within_fsdp_takes_one_collective_per_process_group(four) -> None:
    for rank in four["tensor_parallel"]:
        assert_equal_to_the_whole(rank["with fsdp"], FLOAT64)
        assert rank["with fsdp"]["counts"] == [2]


def test_a_distributed_checkpoint_continues_to_the_last_bit(two) -> None:
    for rank in two["save"]:
        assert rank == {"same": True, "set": True, "types": ["DTensor"]}


def test_a_checkpoint_of_two_ranks_continues_on_four(four) -> None:
    for rank in four["load"]:
        assert rank["steps"] == [25.0]
        assert max(rank["differences"]) < 1e-5
        assert rank["dtypes"] == ["torch.float32"]


def test_a_state_dict_of_whole_tensors_goes_into_shards_and_back(two) -> None:
    assert two["plain_state"] == [{"same": True}] * 2


def test_zero_redundancy_gives_the_numbers_of_one_to_the_bit(two) -> None:
    assert two["zero_redundancy"] == [{"same": True}] * 2


def test_ddp_replicas_on_two_ranks_stay_the_same_to_the_bit(two) -> None:
    assert two["replicas"] == [{"same": True, "counts": [0]}] * 2


def test_ddp_replicas_on_three_ranks_stay_the_same_to_the_bit(four) -> None:
    assert four["replicas"] == [{"same": True, "counts": [0]}] * 3 + [None]


def test_plain_tensors_are_not_sharded() -> None:
    class Own(torch.Tensor):
        pass

    tensors = [torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Own)]
    assert not any(map(is_sharded, tensors))
    plain, sharded = split_sharded([tensors, tensors])
    assert plain == [tensors, tensors]
    assert sharded == [[], []]
