"""Inspect AFOR: beta2, score, noise, agreement and z-score of each named tensor.

`Monitor.record` copies nine numbers per tensor on their own device, without a host sync; they are
transferred when they are read.

>>> import torch
>>> from afor import AFOR
>>> from afor.monitor import Monitor, read
>>> model = torch.nn.Linear(4, 2)
>>> optimizer = AFOR(model.named_parameters(), lr=1e-2)
>>> monitor = Monitor(optimizer)
>>> for _ in range(3):
...     model(torch.ones(8, 4)).square().mean().backward()
...     optimizer.step()
...     monitor.record()
>>> round(read(optimizer)["weight"].beta2, 2)
1.0
>>> len(monitor.readings())  # two tensors, three steps
6
"""

import html
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from afor.control import FIELDS
from afor.optimizer import AFOR

ACTIVE = 0.5  # a tensor is called active if its |z-score| is above this: beta2 has left mid-range
QUANTITIES = ("beta2", "score", "noise", "agreement", "zscore", "score_std")


@dataclass(frozen=True)
class Reading:
    """The state of the controller of one tensor after one step.

    Attributes:
        step: Step of the monitor, or of the tensor when read directly.
        name: Name of the tensor.
        beta2: Its decay rate of the second moment.
        score: The score ρ.
        noise: The larger of the two noise averages.
        agreement: The averaged cosine of gradient and momentum.
        zscore: The standardised score ζ.
        score_std: The standard deviation σ of the score.
    """

    step: int
    name: str
    beta2: float
    score: float
    noise: float
    agreement: float
    zscore: float
    score_std: float

    @property
    def is_active(self) -> bool:
        """Whether the score differs clearly from its running mean."""
        return abs(self.zscore) > ACTIVE


class Readings(dict[str, Reading]):
    """Readings by the names of tensors; an unknown name says how tensors get their names."""

    def __missing__(self, name: str) -> Reading:
        if self and all(key.replace(".", "").isdecimal() for key in self):
            raise KeyError(
                f"no tensor {name!r}: the optimizer knows no names, only {', '.join(self)}. Pass "
                "the model, read(optimizer, model), or build the optimizer from "
                "model.named_parameters()."
            )
        raise KeyError(f"no tensor {name!r} with a step; there are {', '.join(self) or 'none'}.")


def read(optimizer: AFOR, model: torch.nn.Module | None = None) -> Readings:
    """Return the current reading of each tensor that has taken a step, by name.

    Args:
        optimizer: The optimizer to read.
        model: The source of the names. Without it, names are those of the named parameters the
            optimizer was built from, or ``group.index``.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> optimizer = AFOR(layer.parameters())
        >>> layer(torch.ones(1, 2)).sum().backward()
        >>> optimizer.step()
        >>> sorted(read(optimizer, layer))
        ['bias', 'weight']
    """
    return Readings(
        {
            name: _reading(int(state["step"].item()), name, state["control"].tolist())
            for name, state in zip(*_named_states(optimizer, model), strict=True)
        }
    )


class Monitor:
    """Record the controllers of an optimizer over the steps of a run.

    Args:
        optimizer: The optimizer to record.
        model: The source of the names, see `read`.
        every: Record every n-th call of `record` only.

    Raises:
        ValueError: `every` is below 1.
    """

    def __init__(
        self, optimizer: AFOR, model: torch.nn.Module | None = None, *, every: int = 1
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.optimizer = optimizer
        self.model = model
        self.every = every
        self._calls = 0
        self._records: list[tuple[int, list[str], list[Tensor]]] = []

    def record(self) -> None:
        """Record the current state of all controllers; call it after ``optimizer.step()``."""
        self._calls += 1
        if self._calls % self.every:
            return
        names, states = _named_states(self.optimizer, self.model)
        self._records.append((self._calls, names, [state["control"].clone() for state in states]))

    def clear(self) -> None:
        """Delete all records."""
        self._records.clear()

    def readings(self) -> list[Reading]:
        """Return all records, oldest first."""
        return list(self._readings(self._records))

    def table(self) -> str:
        """Return the last record as a text table, one line per tensor.

        >>> print(Monitor(AFOR([torch.zeros(1)])).table())
        tensor  beta2  score  noise  agreement  z-score  sigma
        """
        lines = self._table_lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
            for line in lines
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self._caption()}"

    def __str__(self) -> str:
        return f"{self._caption()}\n{self.table()}"

    def _caption(self) -> str:
        if not self._records:
            return "nothing recorded yet; call record() after optimizer.step()"
        step, names, _ = self._records[-1]
        return f"AFOR's controllers of {len(names)} tensors at call {step} of record()"

    def _table_lines(self) -> list[tuple[str, ...]]:
        header = ("tensor", "beta2", "score", "noise", "agreement", "z-score", "sigma")
        return [header, *map(_cells, self._readings(self._records[-1:]))]

    def to_frame(self) -> Any:
        """Return all records as a pandas DataFrame, one row per step and tensor.

        Raises:
            ImportError: pandas is not installed; `readings` works without it.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError(
                "to_frame() needs pandas: pip install pandas; readings() works without it"
            ) from None
        return pd.DataFrame([asdict(reading) for reading in self.readings()])

    def plot(self, quantity: str = "beta2", names: Sequence[str] | None = None) -> Any:
        """Draw one quantity over the steps, a line per tensor.

        Args:
            quantity: Name of an attribute of `Reading`, such as ``"zscore"``.
            names: Tensors to draw; None draws all.

        Returns:
            A Matplotlib figure, which a notebook shows as a picture.

        Raises:
            ImportError: Matplotlib is not installed.
            ValueError: There is no such quantity or tensor.
        """
        _check_quantities([quantity])
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("plot() needs Matplotlib: pip install matplotlib") from None
        lines: dict[str, tuple[list[int], list[float]]] = {}
        for reading in self.readings():
            steps, values = lines.setdefault(reading.name, ([], []))
            steps.append(reading.step)
            values.append(getattr(reading, quantity))
        for name in names or ():
            if name not in lines:
                raise ValueError(f"no tensor {name!r}; there are {', '.join(lines) or 'none'}")
        figure: Any = Figure(figsize=(7, 3.5), layout="constrained")
        axis = figure.add_subplot()
        for name in names or lines:
            axis.plot(*lines[name], label=name, linewidth=1)
        if quantity == "beta2":
            axis.axhline(
                max((g["betas"][1] for g in self.optimizer.param_groups), default=0.999),
                color="grey", linestyle=":", linewidth=1, label="AdamW",
            )  # fmt: skip
        axis.set_xlabel("step")
        axis.set_ylabel(quantity)
        figure.legend(loc="outside right upper", fontsize="x-small")
        figure._repr_png_ = partial(_png, figure)  # IPython shows it without a pyplot backend
        return figure

    def _repr_html_(self) -> str:
        """Return the last record as an HTML table, for a notebook."""
        header, *lines = self._table_lines()
        cells = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in header)
        rows = "".join(
            f'<tr><th scope="row">{html.escape(name)}</th>'
            + "".join(f"<td>{html.escape(text)}</td>" for text in numbers)
            + "</tr>"
            for name, *numbers in lines
        )
        return (
            f"<table><caption>{html.escape(self._caption())}</caption><thead><tr>{cells}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )

    def active_share(self) -> list[tuple[int, float]]:
        """Return, per recorded step, the share of tensors whose absolute z-score is above 0.5."""
        return [
            (record[0], fmean([r.is_active for r in self._readings([record])] or [0.0]))
            for record in self._records
        ]

    def write(
        self,
        target: Any,
        *,
        prefix: str = "afor",
        quantities: Iterable[str] = ("beta2", "score", "noise", "agreement", "zscore"),
    ) -> None:
        """Write all records to a tracker; to write repeatedly, `clear` after each call.

        Args:
            target: A TensorBoard ``SummaryWriter``, a run of Weights & Biases,
                ``mlflow.log_metrics``, or any other function of a dict of numbers and ``step``.
            prefix: First part of each name: ``prefix/quantity/tensor``. Weights & Biases draws
                them over ``prefix/step``, since its own step only counts up.
            quantities: Names of attributes of `Reading`.

        Raises:
            TypeError: Nothing can be written to `target`.
            ValueError: There is no such quantity.
        """
        quantities = tuple(quantities)
        _check_quantities(quantities)
        log = _log_function(target, prefix)
        for step, readings in groupby(self.readings(), key=lambda reading: reading.step):
            log(
                {f"{prefix}/{q}/{r.name}": getattr(r, q) for r in readings for q in quantities},
                step=step,
            )

    def _readings(self, records: list[tuple[int, list[str], list[Tensor]]]) -> Iterator[Reading]:
        for step, names, controls in records:
            if not controls:
                continue
            values = torch.stack([c.double() for c in controls]).tolist()  # host sync
            for name, row in zip(names, values, strict=True):
                yield _reading(step, name, row)


def _named_states(
    optimizer: AFOR, model: torch.nn.Module | None
) -> tuple[list[str], list[dict[str, Tensor]]]:
    """Return names and states of the tensors that have taken a step."""
    model_names = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
    names, states = [], []
    for g, group in enumerate(optimizer.param_groups):
        group_names = group.get("param_names")
        for i, p in enumerate(group["params"]):
            if optimizer.state.get(p):
                names.append(
                    model_names.get(id(p)) or (group_names[i] if group_names else f"{g}.{i}")
                )
                states.append(optimizer.state[p])
    return names, states


def _reading(step: int, name: str, row: list[float]) -> Reading:
    s = dict(zip(FIELDS, row, strict=True))
    return Reading(
        step=step,
        name=name,
        beta2=1.0 - s["forgetting"],
        score=s["score"],
        noise=max(s["noise_fast"], s["noise_slow"]),
        agreement=s["agreement"],
        zscore=s["zscore"],
        score_std=math.sqrt(max(s["score_var"], 0.0)),
    )


def _cells(r: Reading) -> tuple[str, ...]:
    numbers = f"{r.beta2:.5f} {r.score:.3g} {r.noise:.3g} {r.agreement:.3f} {r.zscore:+.2f}"
    return (r.name, *numbers.split(), f"{r.score_std:.3g}")


def _log_function(target: Any, prefix: str) -> Callable[..., Any]:
    """Return the function that logs the numbers of one step to `target`."""
    if hasattr(target, "add_scalar"):  # TensorBoard

        def log_scalars(values: dict[str, float], step: int) -> None:
            for tag, value in values.items():
                target.add_scalar(tag, value, step)

        return log_scalars
    if hasattr(target, "define_metric"):  # Weights & Biases
        target.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")
        return lambda values, step: target.log({**values, f"{prefix}/step": step})
    if callable(target):
        return target  # type: ignore[no-any-return]
    raise TypeError(
        "write() takes a SummaryWriter, a wandb run, mlflow.log_metrics or another function of a "
        f"dict and step, got {type(target).__name__}"
    )


def _png(figure: Any) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=100)
        return file.getvalue()


def _check_quantities(quantities: Sequence[str]) -> None:
    unknown = [name for name in quantities if name not in QUANTITIES]
    if unknown:
        raise ValueError(f"no quantity {unknown[0]!r}; there are {', '.join(QUANTITIES)}")
