"""AFOR on many processes: the same numbers as on one, one small message a step."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from afor.native.binding import unavailable_reason
from afor.sharded.step import is_sharded, sharded_members, split_sharded
from afor.tensors import StepTensors

pytestmark = [
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="this torch has no gloo",
    ),
    pytest.mark.timeout(900),  # ranks that wait for each other suffer most on a busy machine
]

needs_kernel = pytest.mark.skipif(
    unavailable_reason() is not None, reason=str(unavailable_reason())
)
SCRIPT = Path(__file__).parent / "ranks" / "run.py"
TIMEOUT_S = 800
FLOAT64 = 1e-13  # relative; the sums are added in another order
FLOAT32 = 1e-5
SCORE = 10  # times as much for the score, a ratio that may be close to zero
BOTH = [("torch.float64", FLOAT64), ("torch.float32", FLOAT32)]
ON_TWO = (
    "fsdp", "tensor_parallel", "replicas", "zero_redundancy", "distributed_tensors",
    "partial_gradient", "scaled", "non_finite", "save", "plain_state", "compiled_step", "refused",
    "missing_gradient", "lone_failure", "destroyed",
)  # fmt: skip
ON_FOUR = (
    "fsdp", "hybrid", "tensor_parallel", "tensor_parallel_within_fsdp", "replicas",
    "load", "missing_gradient",
)  # fmt: skip


def launch(folder: Path, worlds: dict[int, tuple[str, ...]]) -> None:
    """Run scenarios on new processes, which leave what they found in the folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    arguments = [f"{world}:{','.join(names)}" for world, names in worlds.items()]
    with (folder / "output.txt").open("w") as output:
        run = subprocess.Popen(
            [sys.executable, SCRIPT, folder, *arguments],
            env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            run.wait(timeout=TIMEOUT_S)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, 9)  # the ranks too
                run.wait()


class Found:
    """What the ranks of one world found."""

    def __init__(self, folder: Path, world: int) -> None:
        self.output = (folder / "output.txt").read_text()
        files = [folder / f"{world}-{rank}.json" for rank in range(world)]
        assert all(f.exists() for f in files), self.output
        self.ranks = [json.loads(f.read_text()) for f in files]

    def __getitem__(self, name: str) -> list[Any]:
        for rank in self.ranks:
            assert "error" not in rank[name], rank[name]["error"]
        return [rank[name]["value"] for rank in self.ranks]


@pytest.fixture(scope="session")
def folder(filled_once: Callable[..., Path]) -> Path:
    """Run everything once."""
    return filled_once("ranks", lambda folder: launch(folder, {2: ON_TWO, 4: ON_FOUR}))


@pytest.fixture(scope="module")
def two(folder: Path) -> Found:
    return Found(folder, 2)


@pytest.fixture(scope="module")
def four(folder: Path) -> Found:
    return Found(folder, 4)


@pytest.fixture(params=[2, 4], ids=["two ranks", "four ranks"])
def world(request: pytest.FixtureRequest, folder: Path) -> Found:
    return Found(folder, request.param)


def assert_equal_to_the_whole(row: dict[str, Any], tolerance: float) -> None:
    for name in ("param", "exp_avg_sq", "control", "forgetting"):
        assert row[name] <= tolerance, f"{name}: {row}"
    assert row["score"] <= tolerance * SCORE, row
    assert row["spread"] > 1e-4, "all tensors have one beta2: the comparison says nothing"


# --------------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize(("dtype", "tolerance"), BOTH)
def test_fsdp_gives_the_numbers_of_one_rank(world, dtype, tolerance) -> None:
    for rank in world["fsdp"]:
        assert_equal_to_the_whole(rank[dtype], tolerance)


def test_a_rank_of_the_fsdp_run_holds_an_empty_shard(world) -> None:
    smallest = [row["smallest_shard"] for rank in world["fsdp"] for row in rank.values()]
    assert min(smallest) == 0


def test_a_step_takes_one_collective_for_all_tensors_and_groups(world) -> None:
    for rank in world["fsdp"]:
        assert [row["counts"] for row in rank.values()] == [[1]] * 2


@pytest.mark.parametrize(("dtype", "tolerance"), BOTH)
def test_replicated_and_sharded_dimensions_count_each_element_once(four, dtype, tolerance) -> None:
    for rank in four["hybrid"]:
        assert_equal_to_the_whole(rank[dtype], tolerance)
        assert rank[dtype]["counts"] == [1]


@pytest.mark.parametrize(("dtype", "tolerance"), BOTH)
def test_a_tensor_parallel_plan_gives_the_numbers_of_one(world, dtype, tolerance) -> None:
    for rank in world["tensor_parallel"]:
        assert_equal_to_the_whole(rank[dtype], tolerance)
        assert rank[dtype]["counts"] == [1]


def test_a_tensor_parallel_plan_within_fsdp_takes_one_collective_per_process_group(four) -> None:
    for rank in four["tensor_parallel_within_fsdp"]:
        assert_equal_to_the_whole(rank, FLOAT64)
        assert rank["counts"] == [2]


def test_the_message_is_six_numbers_for_each_tensor_that_is_cut(two) -> None:
    for rank in two["distributed_tensors"]:
        assert rank["sizes"] == [[4 * 6]]


@pytest.mark.parametrize("kind", ["for-loop", "foreach", pytest.param("fused", marks=needs_kernel)])
def test_tensors_cut_along_any_dimension_mix_with_plain_ones(two, kind) -> None:
    for rank in two["distributed_tensors"]:
        assert_equal_to_the_whole(rank[kind], FLOAT64)


@needs_kernel
def test_a_fused_step_takes_the_scale_of_a_scaler_and_skips_with_it(two) -> None:
    for rank in two["scaled"]:
        assert_equal_to_the_whole(rank, FLOAT32)
        assert rank["steps"] == [7.0, 7.0]  # of eight
        assert rank["messages"] == [1] * 8  # the skipped step sends its message too


def test_a_gradient_still_to_be_added_up_is_added_up(two) -> None:
    for rank in two["partial_gradient"]:
        assert rank["param"] <= FLOAT64
        assert rank["control"] <= FLOAT64


def test_a_non_finite_gradient_on_one_rank_spares_the_control_on_all(two) -> None:
    for rank in two["non_finite"]:
        assert rank["held"]
        assert rank["finite"]
    assert [rank["local_finite"] for rank in two["non_finite"]] == [True, False]


def test_zero_redundancy_gives_the_numbers_of_one_to_the_bit(two) -> None:
    assert two["zero_redundancy"] == [{"same": True}] * 2


def test_ddp_replicas_on_two_ranks_stay_the_same_to_the_bit(two) -> None:
    assert two["replicas"] == [{"same": True, "counts": [0]}] * 2


def test_ddp_replicas_on_three_ranks_stay_the_same_to_the_bit(four) -> None:
    assert four["replicas"] == [{"same": True, "counts": [0]}] * 3 + [None]


# -------------------------------------------------------------------------------- compiled step


def test_a_compiled_step_gives_the_same_numbers_without_a_graph_break(two) -> None:
    for rank in two["compiled_step"]:
        assert_equal_to_the_whole(rank, FLOAT64)
        assert "has a gradient on some ranks only" in rank["message"]


@pytest.mark.slow
def test_a_step_compiled_by_inductor_gives_the_same_numbers(tmp_path) -> None:
    launch(tmp_path, {2: ("compiled_step_by_inductor",)})
    for rank in Found(tmp_path, 2)["compiled_step_by_inductor"]:
        assert_equal_to_the_whole(rank, FLOAT64)
        assert "has a gradient on some ranks only" in rank["message"]


# ---------------------------------------------------------------------------------- checkpoints


def test_a_distributed_checkpoint_continues_to_the_last_bit(two) -> None:
    for rank in two["save"]:
        assert rank == {"same": True, "set": True, "types": ["DTensor"]}


def test_a_checkpoint_of_two_ranks_continues_on_four(two, four) -> None:
    assert two["save"]
    for rank in four["load"]:
        assert rank["steps"] == [12.0]
        assert max(rank["differences"]) < 1e-5
        assert rank["dtypes"] == ["torch.float32"]


def test_a_state_dict_of_whole_tensors_goes_into_shards_and_back(two) -> None:
    assert two["plain_state"] == [{"same": True}] * 2


# ------------------------------------------------------------------------------------- bad use


def test_a_gradient_that_one_rank_lacks_is_named_on_every_rank(world) -> None:
    ranks = world["missing_gradient"]
    size = len(ranks)
    for i, rank in enumerate(ranks):
        here = "this one included" if i < size - 1 else "not on this one"
        sentence = f"gradient on some ranks only: first, on {size - 1} of {size} ranks, {here};"
        assert sentence in rank["one"]["message"]
        assert "\n" not in rank["one"]["message"]


def test_a_rank_without_any_gradient_is_told_so_instead_of_hanging_the_others(world) -> None:
    for rank in world["missing_gradient"]:
        assert "gradient on some ranks only: first and 1 more" in rank["all"]["message"]


@needs_kernel
def test_a_rank_that_fails_or_skips_alone_stops_the_others_before_they_change(two) -> None:
    for what in ("resized", "skipped"):
        first, last = (rank[what] for rank in two["lone_failure"])
        assert "some ranks only: parameter 0 of group 0, on 1 of 2 ranks" in first["message"]
        assert first["kept"]
        assert last["kept"]
        expected = "larger than its storage" if what == "resized" else "not on this one"
        assert expected in last["message"]


@pytest.mark.parametrize("what", ["one", "all"])
def test_a_step_with_odd_gradients_changes_no_parameter(world, what) -> None:
    for rank in world["missing_gradient"]:
        assert rank[what]["kept"] == [True] * 4


def test_every_step_sends_the_same_message_whatever_has_a_gradient(world) -> None:
    groups = {2: 1, 4: 2}[len(world.ranks)]  # on four ranks the tensors are cut twice
    for rank in world["missing_gradient"]:
        for what in ("agreed", "one", "all", "none", "zeros"):
            assert rank[what]["sizes"] == [3 * 6] * groups, what


def test_a_tensor_without_a_gradient_on_any_rank_is_left_alone(world) -> None:
    for rank in world["missing_gradient"]:
        assert rank["agreed"] | {"sizes": 0} == {
            "message": "", "kept": [False, False, True, False], "sizes": 0,
        }  # fmt: skip
        assert rank["none"]["kept"] == [True, True, True, False]
        assert rank["none"]["message"] == ""
        assert rank["untouched"]


def test_zeros_for_a_missing_gradient_let_the_step_go_on(world) -> None:
    for rank in world["missing_gradient"]:
        assert rank["zeros"]["message"] == ""
        assert rank["zeros"]["kept"] == [False, False, True, False]


def test_a_differentiable_step_on_shards_is_refused(two) -> None:
    for rank in two["refused"]:
        assert "differentiable=True" in rank["differentiable"]
        assert "sharded parameters (DTensor)" in rank["differentiable"]
        assert "leave differentiable unset" in rank["differentiable"]


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
        assert "process group does not exist any more" in rank[gone]["message"]
        assert "\n" not in rank[gone]["message"]
        assert rank[gone]["unchanged"], "a plain parameter beside the sharded one was stepped"


# --------------------------------------------------------------------------------- plain tensors


def test_plain_tensors_are_not_sharded() -> None:
    class Own(torch.Tensor):
        pass

    tensors = [torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Own)]
    assert not any(map(is_sharded, tensors))
    assert sharded_members({"params": tensors}, 0) == []
    plain, sharded = split_sharded(StepTensors(*[tensors] * 6))
    assert plain == StepTensors(*[tensors] * 6)
    assert sharded == StepTensors.empty()


def test_what_the_ranks_found_is_printed(folder) -> None:
    """Print the deviations: `pytest tests/sharded/test_step.py -k printed -rP`."""
    output = (folder / "output.txt").read_text()
    print(output)
    assert "2 ranks, fsdp" in output
    assert "4 ranks, fsdp" in output
