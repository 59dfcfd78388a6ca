"""Sophia-G (Liu 2024): momentum divided by an estimate of the curvature, clipped per element.

The curvature is the Gauss-Newton-Bartlett estimate: every `interval` steps the loss is computed
once more on labels drawn from the model's own softmax, and the square of that gradient, times the
batch size, estimates the diagonal of the Gauss-Newton matrix. That pass is what Sophia costs, and
`after_step` is where the training loop pays it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from afor.bench.optimizers.checks import require_at_least, require_betas, trainable
from afor.bench.seeds import derive_substep, isolated

# Keeps the division defined where no curvature is known yet; the clip makes its size irrelevant.
TINY = 1e-15


class Sophia(Optimizer):
    """Sophia-G for classification, with decoupled weight decay and no bias correction.

    The training loop must call `after_step(model, inputs)` after each `step()`. `seed` decides the
    sampled labels; they are drawn aside from the global generators.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: float = 0.04,
        weight_decay: float = 0.1,
        *,
        interval: int = 10,
        seed: int = 0,
    ) -> None:
        require_at_least("lr", lr, 0.0)
        require_betas("betas", betas)
        for name, value in [("rho", rho), ("weight_decay", weight_decay)]:
            require_at_least(name, value, 0.0)
        require_at_least("interval", interval, 1)
        defaults = {
            "lr": lr,
            "betas": betas,
            "rho": rho,
            "weight_decay": weight_decay,
            "interval": interval,
            "seed": seed,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; `closure`, if given, computes the loss and its gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, _ = group["betas"]
            for param, grad in trainable(group, "Sophia"):
                state = self.state[param]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(param)
                    state["hessian"] = torch.zeros_like(param)
                state["step"] += 1
                first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)  # m_t
                ratio = first.abs().div_((state["hessian"] * group["rho"]).add_(TINY))
                param.mul_(1 - group["lr"] * group["weight_decay"])
                param.addcmul_(first.sign(), ratio.clamp_max_(1.0), value=-group["lr"])
        return loss

    def after_step(self, model: torch.nn.Module, inputs: torch.Tensor) -> None:
        """Renew the curvature estimate from these inputs when its turn has come."""
        step = max((state["step"] for state in self.state.values()), default=0)
        group = self.param_groups[0]
        # Paper, Alg. 3: at steps 1, 11, 21, ... before the update. Here: after steps 10, 20, ...
        # because that is what the authors' training script does.
        if step > 0 and step % group["interval"] == 0:
            self.update_hessian(model, inputs, derive_substep(group["seed"], step))

    def update_hessian(self, model: torch.nn.Module, inputs: torch.Tensor, seed: int) -> None:
        """Mix B·ĝ² into the curvature, ĝ the gradient on labels sampled from the softmax.

        Leaves `.grad`, the buffers of the model (running statistics) and the global generators as
        they were.
        """
        params = [p for group in self.param_groups for p in group["params"] if p in self.state]
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        with isolated(seed, inputs.device), torch.enable_grad():
            logits = model(inputs)
            labels = sampled_labels(logits.detach())
            grads = torch.autograd.grad(cross_entropy(logits, labels), params, allow_unused=True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
            grad_of = dict(zip(params, grads, strict=True))
            for group in self.param_groups:
                _, beta2 = group["betas"]
                for param in group["params"]:
                    grad = grad_of.get(param)
                    if grad is not None:
                        # Alg. 2 (GNB): the factor is the size of the batch that gave the gradient.
                        weight = (1 - beta2) * len(inputs)
                        hessian = self.state[param]["hessian"]
                        hessian.mul_(beta2).addcmul_(grad, grad, value=weight)


def sampled_labels(logits: torch.Tensor) -> torch.Tensor:
    """Draw one label per row from softmax(logits), by the largest logit plus Gumbel noise."""
    noise = torch.empty_like(logits).exponential_().log_()
    return (logits - noise).argmax(dim=1)
