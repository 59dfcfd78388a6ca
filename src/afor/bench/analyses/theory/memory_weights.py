"""Lemma 1: the weights of past gradients in the second moment, from a trace of beta2."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afor.bench.common.errors import ConfigError


def weights(beta2: ArrayLike) -> NDArray[np.float64]:
    """Return the weight of each squared gradient in the corrected second moment, oldest first.

    Eq. (afor_convex_form), pi_{t,i} at the last step of the trace. They are not negative and sum
    to 1.

    >>> weights([0.5, 0.5]).round(4).tolist()
    [0.3333, 0.6667]
    """
    trace = _checked(beta2)
    later = np.append(np.cumprod(trace[:0:-1])[::-1], 1.0)  # product of the decays after each step
    raw: NDArray[np.float64] = (1.0 - trace) * later
    return raw / (1.0 - np.prod(trace))


def memory_length(beta2: ArrayLike) -> NDArray[np.float64]:
    """Return the effective memory at every step: the weighted mean age of a gradient, plus one.

    For a constant decay it tends to 1 / (1 - beta2), the paper's 100 to 1000 steps (Sec. III-C).

    >>> memory_length([0.5, 0.5]).round(4).tolist()
    [1.0, 1.3333]
    """
    trace = _checked(beta2)
    lengths = np.empty(len(trace))
    aged = total = 0.0  # sums of weight * (age + 1) and of weights, before the bias correction
    for step, decay in enumerate(trace.tolist()):
        aged = decay * (aged + total) + (1.0 - decay)
        total = decay * total + (1.0 - decay)
        lengths[step] = aged / total
    return lengths


def direction_bound(beta2: ArrayLike, beta1: float = 0.9) -> NDArray[np.float64]:
    """Return at every step a bound on |m| / sqrt(v), both corrected, whatever the gradients were.

    The paper bounds it by G / eps. Here it is sqrt(sum of w² / pi), by Cauchy-Schwarz, over the
    weights w of the first moment (Eq. afor_momentum_weights) and pi of the second.

    >>> direction_bound([0.999, 0.999])[0].round(6).item()
    1.0
    """
    trace = _checked(beta2)
    bounds = np.empty(len(trace))
    quotient = total = 0.0  # sum of w² / pi, and of the weights pi, before the correction
    power = 1.0
    for step, decay in enumerate(trace.tolist()):
        earlier = beta1 * beta1 / decay * quotient if quotient else 0.0
        quotient = earlier + (1.0 - beta1) ** 2 / (1.0 - decay)
        total = decay * total + (1.0 - decay)
        power *= beta1
        bounds[step] = math.sqrt(quotient * total) / (1.0 - power)
    return bounds


def _checked(beta2: ArrayLike) -> NDArray[np.float64]:
    trace = np.asarray(beta2, dtype=np.float64)
    if trace.ndim != 1 or trace.size == 0:
        raise ConfigError(f"A trace of beta2 is one number per step, found shape {trace.shape}.")
    if not bool(np.all((trace > 0.0) & (trace < 1.0))):
        wrong = trace[~((trace > 0.0) & (trace < 1.0))][0]
        raise ConfigError(f"beta2 must lie between 0 and 1 at every step, found {wrong}.")
    return trace
