"""Record the state of AFOR's controller during a run, per layer group and epoch."""

import torch
from torch.optim import Optimizer

from afor import AFOR
from afor.control import FIELDS
from afor.monitor import ACTIVE

# Steps that are kept before they are summed: one copy per step instead of a dozen operations.
BUFFERED_STEPS = 256


class Traces:
    """Averages of the control state over the steps of each epoch.

    There is one host sync per epoch. `result` is {} for other optimizers than AFOR, else
    {group: {"beta2": [...], "beta2_sd": [...], "score": [...], "awake": [...]}} with one value per
    epoch: mean and standard deviation of beta2 over the group's tensors and steps, the mean score,
    and the share of (tensor, step) pairs that are active. An epoch without a step has no value.
    """

    def __init__(self, optimizer: Optimizer, model: torch.nn.Module) -> None:
        self._optimizer = optimizer
        self._named = list(model.named_parameters()) if isinstance(optimizer, AFOR) else []
        self._names: list[str] = []  # of the tensors with a control state
        self._controls: list[torch.Tensor] = []  # these states, changed in place by every step
        self._kept: list[torch.Tensor] = []  # per step, (tensors, fields)
        self._sums: torch.Tensor | None = None  # (statistics, tensors), of this epoch
        self._steps = 0
        self._all_beta2: list[float] = []  # per tensor, summed over all steps
        self._all_steps = 0
        self.result: dict[str, dict[str, list[float]]] = {}

    def after_step(self) -> None:
        """Record the current control state."""
        if not self._controls:
            self._find_controls()
        if self._controls:
            self._kept.append(torch.stack(self._controls))
        if len(self._kept) == BUFFERED_STEPS:
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
            beta2, square, score, active = (
                sum(row[i] for i in members) / len(members) for row in rows
            )
            spread = max(square - beta2**2, 0.0) ** 0.5
            values = {"beta2": beta2, "beta2_sd": spread, "score": score, "awake": active}
            trace = self.result.setdefault(group, {key: [] for key in values})
            for key, value in values.items():
                trace[key].append(value)
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

    def _find_controls(self) -> None:
        """Collect the control states; there are none as long as a scaler leaves out the steps.

        A tensor without a gradient in the first step has no control state.
        """
        states = [(name, self._optimizer.state.get(p, {})) for name, p in self._named]
        traced = [(name, state["control"]) for name, state in states if "control" in state]
        self._names = [name for name, _ in traced]
        self._controls = [control for _, control in traced]

    def _add_up(self) -> None:
        if not self._kept:
            return
        control = torch.stack(self._kept).double()
        beta2 = 1.0 - control[..., FIELDS.index("forgetting")]
        score = control[..., FIELDS.index("score")]
        active = (control[..., FIELDS.index("zscore")].abs() > ACTIVE).double()
        sums = torch.stack([beta2, beta2.square(), score, active]).sum(dim=1)
        self._sums = sums if self._sums is None else self._sums + sums
        self._steps += len(self._kept)
        self._kept = []


def layer_group(parameter_name: str) -> str:
    """Return the top-level module a parameter belongs to.

    >>> layer_group("temporal.conv.weight"), layer_group("head")
    ('temporal', 'head')
    """
    return parameter_name.partition(".")[0]
