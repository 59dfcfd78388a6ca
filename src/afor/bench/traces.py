"""What AFOR's controller did during a run, per layer group and epoch; nothing for the others."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

# A tensor whose standardised score is beyond this moves beta2 visibly away from the middle.
AWAKE = 0.5


class Traces:
    """Averages of the control state over the steps of each epoch.

    Reading waits for the device once per epoch only. `result` is {} for other optimizers, else
    {group: {"beta2": [...], "beta2_sd": [...], "score": [...], "awake": [...]}}, one value per
    epoch: beta2 and its standard deviation over the group's tensors and steps, the mean score,
    and the share of (tensor, step) whose standardised score is beyond 0.5.
    """

    def __init__(self, optimizer: "Optimizer", model: "torch.nn.Module") -> None:
        from afor import AFOR

        self._optimizer = optimizer
        self._named = list(model.named_parameters()) if isinstance(optimizer, AFOR) else []
        self._groups: list[str] = []  # of each tensor, known from the first step on
        self._sums: torch.Tensor | None = None
        self._steps = 0
        self.result: dict[str, dict[str, list[float]]] = {}

    def after_step(self) -> None:
        """Add the present control state to the sums of this epoch."""
        if not self._named:
            return
        import torch

        from afor.control import FIELDS

        state = self._optimizer.state
        if not self._groups:  # tensors that never get a gradient have no control state
            self._named = [(name, p) for name, p in self._named if "control" in state[p]]
            self._groups = [layer_group(name) for name, _ in self._named]
        control = torch.stack([state[p]["control"] for _, p in self._named]).double()
        beta2 = 1.0 - control[:, FIELDS.index("forgetting")]
        score = control[:, FIELDS.index("score")]
        awake = (control[:, FIELDS.index("zscore")].abs() > AWAKE).double()
        now = torch.stack([beta2, beta2.square(), score, awake])
        self._sums = now if self._sums is None else self._sums.add_(now)
        self._steps += 1

    def end_epoch(self) -> None:
        """Turn the sums into one value per group and start the next epoch."""
        if self._sums is None:
            return
        rows = (self._sums / self._steps).tolist()
        for group in dict.fromkeys(self._groups):
            members = [i for i, name in enumerate(self._groups) if name == group]
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
        self._sums, self._steps = None, 0


def layer_group(parameter_name: str) -> str:
    """Return the top-level module a parameter belongs to.

    >>> layer_group("temporal.conv.weight"), layer_group("head")
    ('temporal', 'head')
    """
    return parameter_name.partition(".")[0]
