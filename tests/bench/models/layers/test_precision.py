import torch

from afor.bench.models.layers.precision import autocast_dtype, without_autocast


def test_products_follow_autocast_only_where_it_is_on():
    tensor = torch.zeros(1)
    assert autocast_dtype(tensor) == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert autocast_dtype(tensor) == torch.bfloat16
        with without_autocast(tensor):
            assert autocast_dtype(tensor) == torch.float32
            assert (torch.eye(2) @ torch.eye(2)).dtype == torch.float32


def test_a_device_without_autocast_needs_none():
    tensor = torch.zeros(1, device="meta")
    with without_autocast(tensor):
        assert autocast_dtype(tensor) == torch.float32
