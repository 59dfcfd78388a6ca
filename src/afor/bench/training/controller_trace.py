"""Record the state of AFOR's controller during a run, per layer group and epoch."""

import torch
from torch.optim import Optimizer

from afor import AFOR
from afor.control import FIELDS
from afor.monitor import AWAKE

# Control states buffered before they are summed: one copy per step instead of a dozen operations.
BUFFERED_STEPS = 256


class Traces:
    """Averages of the control state over the steps of each epoch.

    There is one host sync per epoch. `result` is {} for other optimizers than AFOR, else
    {group: {"beta2": [...], "beta2_sd": [...], "score": [...], "awake": [...]}} with one value per
    epoch: mean and standard deviation of beta2 over the group's tensors and steps, the mean score,
    and the share of (tensor, step) pairs that are awake. An epoch without a step has no value.
    """

    def __init__(self, optimizer: Optimizer, model: torch.nn.Module) -> None:
        self._optimizer = optimizer
        self._named = list(model.named_parameters()) if isinstance(optimizer, AFOR) else []
        self._names: list[str] = []  # of the tensors with a control state
        self._controls: list[torch.Tensor] = []  # these states, changed in place by every step
        self._buffer: torch.Tensor | None = None  # (steps, tensors, fields)
        self._filled = 0
        self._sums: torch.Tensor | None = None  # (statistics, tensors), of this epoch
        self._steps = 0
        self._all_beta2: list[float] = []  # per tensor, summed over all steps
        self._all_steps = 0
        self.result: dict[str, dict[str, list[float]]] = {}

    def after_step(self) -> None:
        """Record the current control state."""
        if not self._named:
            return
        if self._buffer is None:
            self._buffer = self._make_buffer()
        if self._buffer is None:
            return  # float16: the scaler has left out every step so far
        torch.stack(self._controls, out=self._buffer[self._filled])
        self._filled += 1
        if self._filled == BUFFERED_STEPS:
            self._add_up()

    def end_epoch(self) -> None:
        """Compute the values of this epoch for each group and start the next epoch."""
        self._add_up()
        if self._sums is None:
            return
        totals = self._sums.tolist()
        rows = [[total / self._steps for total in row] for row in totals]
        groups = [layer_group(name) for name in self._names]
        for group in dict.fromkeys(groups):
            members = [i for i, name in enumerate(groups) if name == group]
            beta2, square, score, awake = (
                sum(row[i] for i in members) / len(members) for row in rows
            )
            trace = self.result.setdefault(
                group, {"beta2": [], "beta2_sd": [], "score": [], "awake": []}
            )
            trace["beta2"].append(beta2)
            trace["beta2_sd"].append(max(square - beta2**2, 0.0) ** 0.5)
            trace["score"].append(score)
            trace["awake"].append(awake)
        before = self._all_beta2 or [0.0] * len(self._names)
        self._all_beta2 = [old + new for old, new in zip(before, totals[0], strict=True)]
        self._all_steps += self._steps
        self._sums, self._steps = None, 0

    @property
    def beta2_by_tensor(self) -> dict[str, float]:
        """Return each tensor's beta2, averaged over all steps so far; {} for other optimizers."""
        return {
            name: total / self._all_steps
            for name, total in zip(self._names, self._all_beta2, strict=True)
        }

    def _make_buffer(self) -> torch.Tensor | None:
        """Collect the control states; return None as long as no step was taken.

        A tensor without a gradient in the first step has no control state.
        """
        states = [(name, self._optimizer.state.get(p, {})) for name, p in self._named]
        traced = [(name, state["control"]) for name, state in states if "control" in state]
        if not traced:
            return None
        self._names = [name for name, _ in traced]
        self._controls = [control for _, control in traced]
        first = self._controls[0]
        return first.new_empty((BUFFERED_STEPS, len(traced), *first.shape))

    def _add_up(self) -> None:
        if self._buffer is None or not self._filled:
            return
        control = self._buffer[: self._filled].double()
        beta2 = 1.0 - control[..., FIELDS.index("forgetting")]
        score = control[..., FIELDS.index("score")]
        awake = (control[..., FIELDS.index("zscore")].abs() > AWAKE).double()
        sums = torch.stack([beta2, beta2.square(), score, awake]).sum(dim=1)
        self._sums = sums if self._sums is None else self._sums + sums
        self._steps += self._filled
        self._filled = 0


def layer_group(parameter_name: str) -> str:
    """Return the top-level module a parameter belongs to.

    >>> layer_group("temporal.conv.weight"), layer_group("head")
    ('temporal', 'head')
    """
    return parameter_name.partition(".")[0]
