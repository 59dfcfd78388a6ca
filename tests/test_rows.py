"""Rows of small tensors in the for-loop: the numbers of one tensor after the other."""

import pytest
import torch

from afor import AFOR, update
from afor.sums import CPU_ROW
from afor.update import Row

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
    begin = Row.__init__

    def count(self, params, *args, **kwargs):
        made.append([tuple(p.shape) for p in params])
        begin(self, params, *args, **kwargs)

    monkeypatch.setattr(Row, "__init__", count)
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    for p in params:
        p.grad = torch.ones_like(p)
    AFOR(params, foreach=False, fused=False).step()
    assert made == [SHAPES[:4], SHAPES[5:]]
