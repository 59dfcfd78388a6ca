"""Serve what runs ask for: batches to train on, predictions. Several runs are served at once.

A run is a generator (`loop.run_program`) that asks for work and goes on when it is done. Runs of a
bundle have the same data, split and seeds, so they ask for the same: one stacked network computes
it for all of them. A run that asks for something else, because it stopped early, is served by
itself; a run whose own code raises leaves the others alone.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.common.errors import CannotBundleError, TrainingError
from afor.bench.common.seeding import seed_torch
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.stacked_eegnet import StackedEEGNet, stacks_here
from afor.bench.training.batches import Batch, Side

if TYPE_CHECKING:
    from afor.bench.training.loop import Fit

EVALUATION_BATCH = 256  # evaluation batch size; changing it changes results bit for bit


@dataclass(frozen=True)
class TrainRequest:
    """Take one step per batch; the answer is the mean loss over the windows."""

    fit: "Fit"
    batches: Sequence[NDArray[np.int64]]
    dropout_seed: int

    @property
    def work(self) -> object:
        """Equal for the same work of two runs of a bundle."""
        return "train", self.dropout_seed


@dataclass(frozen=True)
class PredictRequest:
    """Predict all windows of a side; the answer is their logits, (windows, classes)."""

    fit: "Fit"
    side: Side

    @property
    def work(self) -> object:
        """Equal for the same work of two runs of a bundle."""
        return "predict", self.side.indices.tobytes()


Request = TrainRequest | PredictRequest
Result = TypeVar("Result")


def serve_alone(request: Request) -> Any:
    """Do what one run asks for, with its own network."""
    if isinstance(request, PredictRequest):
        return predict(request.fit.model, request.side, request.fit.n_classes)
    return request.fit.train_batches(request.batches, request.dropout_seed)


def answered_alone(program: Generator[Request, Any, Result]) -> Result:
    """Run a program to its end, each request served by itself, and return its result."""
    answer = None
    while True:
        try:
            request = program.send(answer)
        except StopIteration as end:
            return cast("Result", end.value)
        answer = serve_alone(request)


def predict(model: nn.Module, side: Side, n_classes: int) -> NDArray[np.float32]:
    """Return the logits of all windows of a side, (windows, classes), in evaluation mode."""
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(batch.inputs) for batch in side.in_order(EVALUATION_BATCH)])
    if logits.shape != (len(side.indices), n_classes):
        raise TrainingError(
            f"the network returns {tuple(logits.shape)} for {len(side.indices)} windows. "
            f"Expected logits of shape ({len(side.indices)}, {n_classes}), one per class."
        )
    return logits.cpu().numpy()


class StackServer:
    """Does the same work of several runs at once, in one stacked network."""

    def __init__(self) -> None:
        self._stacks: dict[nn.Module, StackedEEGNet] = {}  # the stack that a network belongs to

    def serve(self, requests: Sequence[Request]) -> list[Any]:
        """Do the work that all of these requests ask for.

        Returns:
            The answer to each request, or the exception that the run's own code raised.
        """
        first = requests[0]
        if isinstance(first, PredictRequest):
            return self._predict([request.fit for request in requests], first.side)
        return self._train([request.fit for request in requests], first)

    def _train(self, fits: "Sequence[Fit]", request: TrainRequest) -> list[Any]:
        seed_torch(request.dropout_seed)
        team = _Team(fits)
        team.each(lambda fit: fit.begin_batches())
        for loaded in request.fit.training.batches(request.batches):
            if not team.active:
                break
            self._step(team, team.active[0].contaminated(loaded))
        team.each(lambda fit: fit.mean_loss())
        return team.answers()

    def _step(self, team: "_Team", batch: Batch) -> None:
        team.each_without_drawing(lambda fit: fit.before_forward(batch))
        if not team.active:
            return
        losses = self._backward(team.active, batch)
        loss_of = dict(zip(team.active, losses.unbind(0), strict=True))
        team.each_without_drawing(lambda fit: fit.take_step(batch, loss_of[fit]))

    def _backward(self, fits: "Sequence[Fit]", batch: Batch) -> torch.Tensor:
        """Set the gradients of all runs and return their losses, (runs,)."""
        stack = self._stack(fits)
        logits = stack(batch.inputs, training=True)
        losses = torch.stack([cross_entropy(of_run, batch.labels) for of_run in logits])
        stack.backward(losses)
        return losses.detach()

    def _predict(self, fits: "Sequence[Fit]", side: Side) -> list[Any]:
        for fit in fits:
            fit.model.eval()
        stack = self._stack(fits)
        with torch.inference_mode():
            logits = torch.cat(
                [stack(batch.inputs, training=False) for batch in side.in_order(EVALUATION_BATCH)],
                dim=1,
            )
        return list(logits.numpy())

    def _stack(self, fits: "Sequence[Fit]") -> StackedEEGNet:
        """Return the stack of exactly these networks, a new one if the runs have changed."""
        models = tuple(fit.model for fit in fits)
        stack = self._stacks.get(models[0])
        if stack is None or stack.models != models:
            stack = StackedEEGNet(cast("Sequence[EEGNet]", models))  # see `check_stackable`
            self._stacks.update(dict.fromkeys(models, stack))
        return stack


class _Team:
    """Runs that take the same steps; one whose own code raises leaves."""

    def __init__(self, fits: "Sequence[Fit]") -> None:
        self._fits = fits
        self._answers: dict[Fit, Any] = {}
        self.active = list(fits)

    def each(self, do: "Callable[[Fit], Any]") -> None:
        """Call a function for each run; an exception ends that run."""
        for fit in list(self.active):
            try:
                self._answers[fit] = do(fit)
            except Exception as error:  # noqa: BLE001  any error fails this run only
                self._answers[fit] = error
                self.active.remove(fit)

    def each_without_drawing(self, do: "Callable[[Fit], Any]") -> None:
        """Call a function for each run; one that draws from torch's generator leaves.

        Dropout draws from it for all runs. Only optimizers that are not part of this package are
        watched: ours do not draw.
        """

        def watched(fit: "Fit") -> Any:
            if ":" not in fit.settings.optimizer or len(self._fits) == 1:
                return do(fit)
            on_cpu = fit.device.type == "cpu"
            random: Any = torch if on_cpu else torch.get_device_module(fit.device)
            state = random.get_rng_state()
            try:
                answer = do(fit)
                if not torch.equal(state, random.get_rng_state()):
                    raise CannotBundleError(
                        f"{fit.settings.optimizer} draws from torch's generator, which the runs of "
                        "a bundle share"
                    )
            finally:
                random.set_rng_state(state)
            return answer

        self.each(watched)

    def answers(self) -> list[Any]:
        """Return what the last call gave for each run, or its exception."""
        return [self._answers[fit] for fit in self._fits]


def check_stackable(model: nn.Module) -> None:
    """Raise CannotBundleError for a network whose runs cannot be one network on this machine."""
    if not stacks_here(model):
        raise CannotBundleError(
            f"{type(model).__name__} has other bits in a bundle than by itself on this machine: it "
            "does not run in compiled code."
        )
