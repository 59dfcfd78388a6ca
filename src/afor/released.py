"""The update of the package afor-optimizer 0.1.0, reproduced to continue its runs.

Differences from the paper: the cosine is one whenever a norm is at most eps, and carries no
eps otherwise; the z-score is divided by sqrt(max(var, 1e-8)) + eps; the scalars are float32 and the
cumulative product is rounded to float32; the warm-up is always 100 steps.

The control vector holds the cumulative product C instead of 1 - C.
"""

import math
from typing import Any

import torch
from torch import Tensor

from afor.control import FIELDS

_WARMUP_STEPS = 100
_INDEX = {name: i for i, name in enumerate(FIELDS)}


def released_afor(*lists: list[Tensor], group: dict[str, Any]) -> None:
    """Take one step as afor-optimizer 0.1.0 does, bit for bit in float32."""
    lr, eps = group["lr"], group["eps"]
    beta1, beta2 = group["betas"]
    sign = -1.0 if group["maximize"] else 1.0
    for param, original_grad, exp_avg, exp_avg_sq, control, count in zip(*lists, strict=True):
        grad = original_grad if sign > 0 else -original_grad
        count.add_(1)
        step = int(count.item())
        if step == 1:
            control[_INDEX["correction"]] = 1.0  # C_0
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])

        s = {name: control[i] for name, i in _INDEX.items()}  # views
        residual = (grad - exp_avg).abs().mean()
        s["noise_fast"].mul_(beta1).add_(residual, alpha=1 - beta1)
        s["noise_slow"].mul_(beta2).add_(residual, alpha=1 - beta2)
        grad_norm, momentum_norm = grad.norm(), exp_avg.norm()
        if grad_norm > eps and momentum_norm > eps:
            cosine = ((grad * exp_avg).sum() / (grad_norm * momentum_norm)).clamp(min=0.0)
        else:
            cosine = torch.ones((), device=param.device)
        s["agreement"].mul_(0.9).add_(cosine, alpha=0.1)
        exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)

        noise = s["noise_slow"]
        if group["fast_channel"]:
            noise = torch.max(s["noise_fast"], noise)
        ratio = exp_avg.abs().mean() / (noise + eps)
        score = (ratio * (1.0 + group["direction_weight"] * (s["agreement"] - 1.0))).clamp(min=0.0)
        value = score.item()
        s["score_mean"].mul_(beta2).add_(value, alpha=1 - beta2)
        delta = value - s["score_mean"]
        s["score_var"].mul_(beta2).addcmul_(delta, delta, value=1 - beta2)
        spread = math.sqrt(max(s["score_var"].item(), 1e-8)) + eps
        zscore = torch.clamp(delta / spread, -5.0, 5.0)

        raw = group["beta2_min"] + (beta2 - group["beta2_min"]) * torch.sigmoid(zscore)
        gate = min(1.0, step / _WARMUP_STEPS)
        decay = gate * raw + (1.0 - gate) * beta2
        s["correction"].mul_(decay)
        s["score"].copy_(score)
        s["zscore"].copy_(zscore)
        s["forgetting"].copy_(1.0 - decay)

        rounded = decay.item()
        exp_avg_sq.mul_(rounded).addcmul_(grad, grad, value=1 - rounded)
        bias1 = 1.0 - beta1**step
        bias2 = max(1.0 - s["correction"].item(), 1e-12)
        denominator = (exp_avg_sq.sqrt() / math.sqrt(bias2)).add_(eps)
        param.addcdiv_(exp_avg, denominator, value=-(lr / bias1))
