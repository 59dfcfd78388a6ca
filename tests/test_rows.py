"""Rows of small tensors in the for-loop: the numbers of one tensor after the other."""

import threading

import pytest
import torch

from afor import AFOR, rows, update
from afor.rows import Pool, Row
from afor.sums import CPU_ROW

SHAPES = [(3,), (2, 5), (), (0,), (CPU_ROW + 1,), (4, 4), (7,)]


def steps(dtype: torch.dtype, **options: object) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    params = [torch.nn.Parameter(draw(shape)) for shape in SHAPES]
    params.append(torch.nn.Parameter(draw((4, 6)).t()))  # not contiguous
    optimizer = AFOR(params, weight_decay=0.1, foreach=False, fused=False, **options)
    for _ in range(5):
        for p in params:
            p.grad = draw(tuple(p.shape))
        optimizer.step()
    names = ("exp_avg", "exp_avg_sq", "control", "step")
    return [t for p in params for t in (p.detach(), *(optimizer.state[p][n] for n in names))]


@pytest.mark.parametrize(
    "options",
    [{"lr": 0.01}, {"lr": torch.tensor(0.01)}, {"lr": 0.01, "maximize": True}],
    ids=["float", "tensor", "maximize"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_give_the_numbers_of_one_tensor_after_the_other(dtype, options, monkeypatch):
    in_rows = steps(dtype, **options)
    monkeypatch.setattr(update, "_use_rows", lambda _: False)
    for row, single in zip(in_rows, steps(dtype, **options), strict=True):
        torch.testing.assert_close(row, single)


def test_a_large_tensor_ends_a_row_and_small_ones_share_it(monkeypatch):
    made = []
    begin = Row.begin

    def count(self, params, *args, **kwargs):
        made.append([tuple(p.shape) for p in params])
        return begin(self, params, *args, **kwargs)

    monkeypatch.setattr(Row, "begin", count)
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    for p in params:
        p.grad = torch.ones_like(p)
    AFOR(params, foreach=False, fused=False).step()
    assert made == [SHAPES[:4], SHAPES[5:]]


SHAPE_PAIR = (torch.Size([3]), torch.Size([2, 5]))


def test_a_row_is_used_again_but_never_by_two_steps_at_once():
    pool = Pool(Row)
    first, second = (pool.take(SHAPE_PAIR, torch.float32) for _ in range(2))
    assert first is not second
    pool.give_back(first)
    assert pool.take(SHAPE_PAIR, torch.float64) is not first
    assert pool.take(SHAPE_PAIR, torch.float32) is first


def test_threads_do_not_share_rows():
    pool, taken = Pool(Row), []
    pool.give_back(pool.take(SHAPE_PAIR, torch.float32))
    thread = threading.Thread(target=lambda: taken.append(pool.take(SHAPE_PAIR, torch.float32)))
    thread.start()
    thread.join()
    assert pool.take(SHAPE_PAIR, torch.float32) is not taken[0]


def test_what_is_kept_has_a_limit(monkeypatch):
    monkeypatch.setattr(rows, "MAX_KEPT", 30)  # a row of the pair has 13 elements
    pool = Pool(Row)
    taken = [pool.take(SHAPE_PAIR, torch.float32) for _ in range(3)]
    for row in taken:
        pool.give_back(row)
    assert [pool.take(SHAPE_PAIR, torch.float32) in taken for _ in range(2)] == [True, False]


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["first", "last"])
def test_a_step_in_inference_mode_leaves_no_trace_in_later_steps(order):
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in ((3,), (2, 2))]
    optimizer = AFOR(params, lr=0.1, foreach=False, fused=False)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()  # makes the state
    for mode in order:
        with torch.inference_mode(mode):
            optimizer.step()
    assert optimizer.state[params[0]]["step"] == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_control_states_of_any_dtype_are_read_and_written_as_numbers(dtype):
    stored = [torch.arange(9, dtype=dtype), torch.tensor(4.0)]
    table = rows.ControlTable(1, dtype)
    assert table.read(stored) == [*map(float, range(9)), 4.0]
    table.write(stored, [0.5] * 9 + [5.0])
    assert stored[0].tolist() == [0.5] * 9
    assert stored[1] == 5.0
