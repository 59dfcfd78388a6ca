"""The optimizer of the package afor-optimizer 0.1.0, reproduced to continue and compare its runs.

Differences from the paper: the cosine is one whenever a norm is at most eps, and carries no
eps otherwise; the z-score is divided by sqrt(max(var, 1e-8)) + eps; the scalars are float32 and the
cumulative product is rounded to float32; the warm-up is always 100 steps.
"""

import math
from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

_WARMUP_STEPS = 100
# Initial values of a tensor's scalars.
_SCALARS = {
    "noise_fast": 0.0, "noise_slow": 0.0, "dir_ema": 1.0, "beta2_cumprod": 1.0, "snr_ema": 0.0,
    "snr_var_ema": 1.0, "snr_t": 0.0, "z_t": 0.0, "beta2_t": 1.0,
}  # fmt: skip


class ReleasedAFOR(Optimizer):
    """AFOR as the package afor-optimizer 0.1.0 computes it, bit for bit in float32.

    Arguments and state have the names of the package, so state dicts go both ways; `afor.AFOR`
    loads them too. It takes real dense tensors on any device, one after the other.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        betas: decay of the first moment, and the longest memory of the second.
        beta2_min: the shortest memory of the second moment.
        dir_weight: how much disagreement with the momentum lowers the score.
        eps: added to denominators.
        weight_decay: decoupled weight decay.
        fast_ref: compare with the larger of a fast and a slow noise average.

    Raises:
        ValueError: A number is outside its range.

    Example:
        >>> import torch
        >>> from afor.released import ReleasedAFOR
        >>> layer = torch.nn.Linear(4, 2)
        >>> optimizer = ReleasedAFOR(layer.parameters(), lr=1e-3)
        >>> layer(torch.ones(3, 4)).square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        beta2_min: float = 0.99,
        dir_weight: float = 1.0,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        fast_ref: bool = True,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "beta2_min": beta2_min, "dir_weight": dir_weight,
            "eps": eps, "weight_decay": weight_decay, "fast_ref": fast_ref,
        }  # fmt: skip
        decays = {"betas": betas, "beta2_min": (beta2_min,)}
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
        for name, values in decays.items():
            if not all(0 <= decay < 1 for decay in values):
                raise ValueError(f"{name} must be in [0, 1), got {defaults[name]!r}")
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step; with a closure, evaluate it first and return its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_tensor(p, p.grad, group)
        return loss

    def _step_tensor(self, param: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if grad.layout != torch.strided or grad.is_complex():
            raise RuntimeError(
                "ReleasedAFOR takes neither sparse nor complex gradients; AFOR takes complex ones"
            )
        s, lr, eps = self.state[param], float(group["lr"]), group["eps"]
        beta1, beta2 = group["betas"]
        if not s:
            s["step"] = 0
            s["exp_avg"], s["exp_avg_sq"] = torch.zeros_like(param), torch.zeros_like(param)
            for name, value in _SCALARS.items():
                s[name] = torch.tensor(value, device=param.device)
        exp_avg, exp_avg_sq = s["exp_avg"], s["exp_avg_sq"]
        s["step"] += 1
        step = int(s["step"])
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])

        residual = (grad - exp_avg).abs().mean()
        s["noise_fast"].mul_(beta1).add_(residual, alpha=1 - beta1)
        s["noise_slow"].mul_(beta2).add_(residual, alpha=1 - beta2)
        grad_norm, momentum_norm = grad.norm(), exp_avg.norm()
        if grad_norm > eps and momentum_norm > eps:
            cosine = ((grad * exp_avg).sum() / (grad_norm * momentum_norm)).clamp(min=0.0)
        else:
            cosine = torch.ones((), device=param.device)
        s["dir_ema"].mul_(0.9).add_(cosine, alpha=0.1)
        exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)

        noise = (
            torch.max(s["noise_fast"], s["noise_slow"]) if group["fast_ref"] else s["noise_slow"]
        )
        ratio = exp_avg.abs().mean() / (noise + eps)
        score = (ratio * (1.0 + group["dir_weight"] * (s["dir_ema"] - 1.0))).clamp(min=0.0)
        value = score.item()
        s["snr_ema"].mul_(beta2).add_(value, alpha=1 - beta2)
        delta = value - s["snr_ema"]
        s["snr_var_ema"].mul_(beta2).addcmul_(delta, delta, value=1 - beta2)
        spread = math.sqrt(max(s["snr_var_ema"].item(), 1e-8)) + eps
        zscore = torch.clamp(delta / spread, -5.0, 5.0)

        raw = group["beta2_min"] + (beta2 - group["beta2_min"]) * torch.sigmoid(zscore)
        gate = min(1.0, step / _WARMUP_STEPS)
        decay = gate * raw + (1.0 - gate) * beta2
        s["beta2_cumprod"].mul_(decay)
        s["snr_t"], s["z_t"], s["beta2_t"] = score, zscore, decay

        rounded = decay.item()
        exp_avg_sq.mul_(rounded).addcmul_(grad, grad, value=1 - rounded)
        bias1 = 1.0 - beta1**step
        bias2 = max(1.0 - s["beta2_cumprod"].item(), 1e-12)
        denominator = (exp_avg_sq.sqrt() / math.sqrt(bias2)).add_(eps)
        param.addcdiv_(exp_avg, denominator, value=-(lr / bias1))
