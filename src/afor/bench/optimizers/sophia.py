"""Sophia-G (Liu 2024): momentum divided by an estimate of the curvature, clipped per element.

The curvature is the Gauss-Newton-Bartlett estimate: every `interval` steps the loss is computed
again on labels sampled from the model's softmax, and the square of that gradient, times the batch
size, estimates the diagonal of the Gauss-Newton matrix. The training loop does this additional pass
by calling `after_step`, or `before_step` with `hessian_batch="next"`.
"""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from afor.bench.common.seeding import derive_substep, isolated
from afor.bench.optimizers.stepwise import AtLeastZero, Options, Steps, StepwiseOptimizer

# Avoids division by zero before the first estimate; clipping makes its size irrelevant.
TINY = 1e-15

HessianBatch = Literal["same", "next"]


class Sophia(StepwiseOptimizer):
    """Sophia-G for classification, with decoupled weight decay and no bias correction.

    The training loop must call `before_step(model, inputs)` before the forward pass of each batch
    and `after_step(model, inputs)` after each `step()`.

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate, the largest change of a weight in one step.
        betas: Decay of the momentum and of the curvature estimate.
        rho: Factor of the curvature in the denominator.
        weight_decay: Decoupled weight decay.
        interval: Steps between two estimates of the curvature.
        seed: Seed of the sampled labels; the global generators are not used.
        hessian_batch: `"same"` estimates the curvature on the batch just stepped on, `"next"` on
            the one that follows, as the authors' training script does.
        hessian_clip: Maximum norm of the sampled gradient (1.0 in the authors' training script);
            None does not clip.
        bs: Factor of the squared sampled gradient; None uses the batch size.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: AtLeastZero = 0.04,
        weight_decay: float = 0.1,
        *,
        interval: Steps = 10,
        seed: int = 0,
        hessian_batch: HessianBatch = "same",
        hessian_clip: Annotated[float, Field(gt=0)] | None = None,
        bs: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "rho": rho, "weight_decay": weight_decay,
            "interval": interval, "seed": seed, "bs": bs,
            "hessian_batch": hessian_batch, "hessian_clip": hessian_clip,
        }  # fmt: skip
        super().__init__(params, defaults)

    def new_state(self, param: Tensor, group: Options) -> Options:  # noqa: ARG002
        """Return the state of a tensor before its first step."""
        zeros = torch.zeros_like
        return {"step": 0, "exp_avg": zeros(param), "hessian": zeros(param)}

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        beta1, _ = group["betas"]
        first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)  # m_t
        ratio = first.abs().div_((state["hessian"] * group["rho"]).add_(TINY))
        param.mul_(1 - group["lr"] * group["weight_decay"])
        param.addcmul_(first.sign(), ratio.clamp_max_(1.0), value=-group["lr"])

    def before_step(self, model: torch.nn.Module, inputs: Tensor) -> None:
        """Estimate the curvature on the next batch, if due and `hessian_batch` is `"next"`."""
        if self.param_groups[0]["hessian_batch"] == "next":
            self._renew_curvature(model, inputs)

    def after_step(self, model: torch.nn.Module, inputs: Tensor) -> None:
        """Estimate the curvature on the last batch, if due and `hessian_batch` is `"same"`."""
        if self.param_groups[0]["hessian_batch"] == "same":
            self._renew_curvature(model, inputs)

    def _renew_curvature(self, model: torch.nn.Module, inputs: Tensor) -> None:
        step = max((state["step"] for state in self.state.values()), default=0)
        group = self.param_groups[0]
        # Paper, Alg. 3: at steps 1, 11, 21, ... before the update. Here: after steps 10, 20, ...
        # because that is what the authors' training script does.
        if step > 0 and step % group["interval"] == 0:
            self.update_hessian(model, inputs, derive_substep(group["seed"], step))

    def update_hessian(self, model: torch.nn.Module, inputs: Tensor, seed: int) -> None:
        """Mix bs·ĝ² into the curvature, ĝ the gradient on labels sampled from the softmax.

        `.grad`, the buffers of the model (running statistics) and the global generators are not
        changed.
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
            shrink = self._clip_factor([grad for grad in grads if grad is not None])
            grad_of = dict(zip(params, grads, strict=True))
            for group in self.param_groups:
                _, beta2 = group["betas"]
                for param in group["params"]:
                    grad = grad_of.get(param)
                    if grad is not None:
                        # Alg. 2 (GNB): the factor is the size of the batch that gave the gradient.
                        size = len(inputs) if group["bs"] is None else group["bs"]
                        weight = (1 - beta2) * size
                        hessian = self.state[param]["hessian"]
                        if shrink is not None:
                            grad = grad * shrink
                        hessian.mul_(beta2).addcmul_(grad, grad, value=weight)

    def _clip_factor(self, grads: list[Tensor]) -> Tensor | None:
        """Return the factor that clips the norm of the sampled gradient, or None."""
        max_norm = self.param_groups[0]["hessian_clip"]
        if max_norm is None:
            return None
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        shrink: Tensor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as clip_grad_norm_
        return shrink


def sampled_labels(logits: Tensor) -> Tensor:
    """Draw one label per row from softmax(logits), by the largest logit plus Gumbel noise."""
    noise = torch.empty_like(logits).exponential_().log_()
    return (logits - noise).argmax(dim=1)
