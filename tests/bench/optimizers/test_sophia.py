import copy

import pytest
import torch
from torch import nn

from afor.bench.common.seeding import derive_substep, isolated
from afor.bench.optimizers.sophia import Sophia, sampled_labels


class OneWeight(nn.Module):
    """Two classes with logits (w·x, 0): the gradient for one label is ((p - [label = 0])·x)."""

    def __init__(self, weight: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.weight * inputs, torch.zeros_like(inputs)], dim=1)


def set_grad(param: nn.Parameter, value: float) -> None:
    param.grad = torch.full_like(param, value)


def test_without_curvature_the_step_is_the_sign_of_the_momentum() -> None:
    model = OneWeight(1.0)
    set_grad(model.weight, -2.0)
    Sophia(model.parameters(), lr=0.1, weight_decay=0.5).step()
    assert model.weight.item() == pytest.approx(1.0 * (1 - 0.05) + 0.1, abs=1e-12)


def test_the_estimate_is_the_batch_size_times_the_squared_gradient() -> None:
    # At w = 0 both classes have p = 1/2, so the gradient of the window x = 2 is +1 or -1 whichever
    # label is drawn. Mean over two windows (2, 0): 1/2. B * g**2 = 2 / 4, times 1 - 0.75.
    model = OneWeight()
    set_grad(model.weight, 0.0)
    optimizer = Sophia(model.parameters(), lr=0.1, betas=(0.5, 0.75), interval=1)
    optimizer.step()
    inputs = torch.tensor([2.0, 0.0], dtype=torch.float64)
    optimizer.after_step(model, inputs)
    assert optimizer.state[model.weight]["hessian"].item() == pytest.approx(0.125, abs=1e-12)
    optimizer.update_hessian(model, inputs, seed=1)
    assert optimizer.state[model.weight]["hessian"].item() == pytest.approx(
        0.75 * 0.125 + 0.125, abs=1e-12
    )


def test_the_step_divides_the_momentum_by_rho_times_curvature() -> None:
    model = OneWeight()
    optimizer = Sophia(model.parameters(), lr=0.1, betas=(0.5, 0.75), rho=4.0, weight_decay=0.5)
    set_grad(model.weight, 2.0)
    optimizer.step()  # m = 1, no curvature: to -0.1
    optimizer.state[model.weight]["hessian"].fill_(0.125)
    set_grad(model.weight, -0.6)
    optimizer.step()  # m = 0.5 * 1 - 0.5 * 0.6 = 0.2; 0.2 / (4 * 0.125) = 0.4
    assert model.weight.item() == pytest.approx(-0.1 * 0.95 - 0.1 * 0.4, abs=1e-12)


def test_the_estimate_averages_to_the_gauss_newton_diagonal() -> None:
    model = OneWeight(0.7)
    inputs = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    set_grad(model.weight, 0.0)
    optimizer = Sophia(model.parameters(), lr=0.0, betas=(0.9, 0.0))  # keeps the last estimate
    optimizer.step()
    estimates = []
    for seed in range(600):
        optimizer.update_hessian(model, inputs, seed)
        estimates.append(optimizer.state[model.weight]["hessian"].item())
    p = torch.sigmoid(0.7 * inputs)
    exact = (p * (1 - p) * inputs**2).mean().item()
    # Its standard error over these repetitions is about 5.5 percent.
    assert sum(estimates) / len(estimates) == pytest.approx(exact, rel=0.2)


def test_the_estimate_is_renewed_after_every_tenth_step_only(batches, convnet) -> None:
    optimizer = Sophia(convnet.parameters())
    renewed = []
    seen: list[torch.Tensor] = []
    for step, (inputs, labels) in enumerate(batches[:25], start=1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(convnet(inputs), labels).backward()
        optimizer.step()
        optimizer.after_step(convnet, inputs)
        curvature = optimizer.state[next(convnet.parameters())]["hessian"].clone()
        if seen and not torch.equal(curvature, seen[-1]):
            renewed.append(step)
        seen.append(curvature)
    assert renewed == [10, 20]


def test_the_sampled_pass_leaves_statistics_gradients_and_generators_as_they_were(
    batches, convnet
) -> None:
    inputs, labels = batches[0]
    optimizer = Sophia(convnet.parameters(), interval=1)
    nn.functional.cross_entropy(convnet(inputs), labels).backward()
    optimizer.step()
    buffers = copy.deepcopy(dict(convnet.named_buffers()))
    weights = [p.detach().clone() for p in convnet.parameters()]
    grads = [p.grad.clone() for p in convnet.parameters()]
    generator = torch.get_rng_state()
    optimizer.after_step(convnet, inputs)
    assert all(s["hessian"].abs().sum() > 0 for s in optimizer.state.values())
    for name, buffer in convnet.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
    for param, weight, grad in zip(convnet.parameters(), weights, grads, strict=True):
        assert torch.equal(param, weight)
        assert torch.equal(param.grad, grad)
    assert torch.equal(torch.get_rng_state(), generator)
    assert convnet.training


def test_the_seed_and_the_step_decide_the_sampled_labels(batches, convnet) -> None:
    def curvature(seed: int, noise: int) -> torch.Tensor:
        net = copy.deepcopy(convnet)
        torch.manual_seed(0)
        inputs, labels = batches[0]
        optimizer = Sophia(net.parameters(), interval=1, seed=seed)
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        torch.rand(noise)
        optimizer.after_step(net, inputs)
        return optimizer.state[next(net.parameters())]["hessian"]

    assert torch.equal(curvature(seed=1, noise=0), curvature(seed=1, noise=7))
    assert not torch.equal(curvature(seed=1, noise=0), curvature(seed=2, noise=0))


def test_labels_are_drawn_in_proportion_to_the_softmax() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2])).repeat(20_000, 1)
    with isolated(5, torch.device("cpu")):
        shares = sampled_labels(logits).bincount(minlength=3) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.015, rtol=0)


def test_a_diverged_network_does_not_stop_the_sampling() -> None:
    labels = sampled_labels(torch.full((4, 3), float("nan")))
    assert ((labels >= 0) & (labels < 3)).all()


def test_the_next_batch_gives_the_estimate_where_that_is_wanted(batches, convnet) -> None:
    optimizer = Sophia(convnet.parameters(), hessian_batch="next")
    renewed, before = [], None
    for step, (inputs, labels) in enumerate(batches[:25], start=1):
        optimizer.before_step(convnet, inputs)
        if optimizer.state:
            curvature = optimizer.state[next(convnet.parameters())]["hessian"].clone()
            if before is not None and not torch.equal(curvature, before):
                renewed.append(step)
            before = curvature
        optimizer.zero_grad()
        nn.functional.cross_entropy(convnet(inputs), labels).backward()
        optimizer.step()
        optimizer.after_step(convnet, inputs)
    assert renewed == [11, 21]  # after the tenth step, on the inputs of the eleventh


def test_a_long_sampled_gradient_is_scaled_to_the_largest_norm() -> None:
    # As above: the sampled gradient is 1/2 whichever label is drawn; clipped to 1/4 its square is a
    # quarter of what it was.
    found = []
    for clip in (None, 0.25, 10.0):
        model = OneWeight()
        set_grad(model.weight, 0.0)
        optimizer = Sophia(
            model.parameters(), lr=0.1, betas=(0.5, 0.75), interval=1, hessian_clip=clip
        )
        optimizer.step()
        optimizer.after_step(model, torch.tensor([2.0, 0.0], dtype=torch.float64))
        found.append(optimizer.state[model.weight]["hessian"].item())
    assert found == pytest.approx([0.125, 0.125 / 4, 0.125], rel=1e-5)


def test_bs_replaces_the_batch_size_in_the_estimate() -> None:
    model = OneWeight()
    set_grad(model.weight, 0.0)
    optimizer = Sophia(model.parameters(), lr=0.1, betas=(0.5, 0.75), interval=1, bs=5120)
    optimizer.step()
    optimizer.after_step(model, torch.tensor([2.0, 0.0], dtype=torch.float64))
    expected = 0.25 * 5120 / 4
    assert optimizer.state[model.weight]["hessian"].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"hessian_batch": "last"}, "hessian_batch = 'last' is not valid: .* 'same' or 'next'"),
        ({"hessian_clip": 0.0}, "hessian_clip = 0.0 is not valid: input should be greater than 0"),
        ({"bs": 0}, "bs"),
    ],
)
def test_a_setting_of_the_estimate_that_means_nothing_is_refused(setting, message) -> None:
    with pytest.raises(ValueError, match=message):
        Sophia(OneWeight().parameters(), **setting)


def test_fifty_steps_match_the_authors_package(batches, convnet) -> None:
    authors = pytest.importorskip("sophia_opt")
    settings = {"lr": 1e-2, "betas": (0.965, 0.99), "rho": 0.04, "weight_decay": 1e-2}
    nets = [copy.deepcopy(convnet), copy.deepcopy(convnet)]
    ours = Sophia(nets[0].parameters(), seed=6, **settings)
    theirs = authors.SophiaG(nets[1].parameters(), **settings)
    for step, (inputs, labels) in enumerate(batches, start=1):
        for net, optimizer in zip(nets, (ours, theirs), strict=True):
            torch.manual_seed(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), labels).backward()
        ours.step()
        ours.after_step(nets[0], inputs)
        theirs.step(bs=len(inputs))
        theirs.zero_grad()
        if step % 10 == 0:
            buffers = copy.deepcopy(list(nets[1].buffers()))
            with isolated(derive_substep(6, step), inputs.device):
                logits = nets[1](inputs)
                sampled = sampled_labels(logits.detach())
            nn.functional.cross_entropy(logits, sampled).backward()
            theirs.update_hessian()
            for buffer, before in zip(nets[1].buffers(), buffers, strict=True):
                buffer.data.copy_(before)
    start, end_ours, end_theirs = (
        nn.utils.parameters_to_vector(net.parameters()) for net in (convnet, *nets)
    )
    difference = (end_ours - end_theirs).abs().max() / (end_theirs - start).abs().max()
    assert difference < 1e-12
