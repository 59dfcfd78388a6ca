"""Muon with AdamW for the rest, against torch's two optimizers on their own tensors."""

import copy

import pytest
import torch
from torch import nn

from afor.bench.optimizers.muon import MuonAdamW


def steps(net, optimizers, batches):
    for inputs, labels in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        for optimizer in optimizers:
            optimizer.step()


def test_linear_layers_are_trained_by_torchs_muon_and_biases_by_adamw():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    twin = copy.deepcopy(net)
    batches = [(torch.randn(6, 5), torch.randint(3, (6,))) for _ in range(5)]
    steps(net, [MuonAdamW(net.parameters(), lr=0.01, weight_decay=0.1)], batches)
    matrices = [p for p in twin.parameters() if p.dim() == 2]
    rest = [p for p in twin.parameters() if p.dim() != 2]
    muon = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(rest, lr=0.01, weight_decay=0.1)
    steps(twin, [muon, adamw], batches)
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        if ours.dim() == 2:
            assert torch.equal(ours, theirs)
        torch.testing.assert_close(ours, theirs)


def test_a_kernel_is_a_matrix_with_a_row_per_output_channel():
    torch.manual_seed(0)
    kernel = nn.Parameter(torch.randn(4, 2, 1, 3))
    matrix = nn.Parameter(kernel.detach().reshape(4, 6).clone())
    by_adamw = nn.Parameter(kernel.detach().clone())
    for param, settings in ((kernel, {}), (matrix, {}), (by_adamw, {"kernels": False})):
        optimizer = MuonAdamW([param], lr=0.01, **settings)
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            param.grad = torch.randn(4, 6, generator=generator).reshape(param.shape)
            optimizer.step()
    assert torch.equal(kernel.reshape(4, 6), matrix)
    assert not torch.allclose(kernel, by_adamw)


def test_settings_outside_their_range_are_refused():
    with pytest.raises(ValueError, match="momentum"):
        MuonAdamW([nn.Parameter(torch.ones(2, 2))], momentum=1.0)
    with pytest.raises(ValueError, match="ns_steps"):
        MuonAdamW([nn.Parameter(torch.ones(2, 2))], ns_steps=0)
