"""Print what tensors without a function do in a training: docs/explanation/redundant-tensors.md.

python docs/figures/redundant.py
"""

import tempfile

import torch

from afor.bench.analyses.adaptation.memory import validation_logits, with_optimizer
from afor.bench.analyses.replay import ChosenRun, find_run, replay
from afor.bench.study.schema import parse_study

EPOCHS = 30
TENSORS = ("temporal_norm.weight", "temporal_norm.bias")


def run(*, hold: bool) -> ChosenRun:
    """Return a run of the authors' EEGNet on synthetic subjects."""
    study = parse_study(
        {
            "name": "redundant",
            "datasets": [{"name": "synthetic", "options": {"n_subjects": 6, "trials": 32}}],
            "backbones": ["eegnet_authors"],
            "optimizers": ["adam"],
            "training": {
                "lr": 3e-3,
                "batch_size": 32,
                "max_epochs": EPOCHS,
                "patience": EPOCHS,
                "hold_redundant": hold,
            },
        }
    )
    return find_run(study, optimizer="adam", cache_dir=tempfile.mkdtemp())


def main() -> None:
    """Train with Adam and AdamW, with and without the tensors; print scales and distances."""
    for hold in (False, True):
        chosen, trained = run(hold=hold), {}
        predict = validation_logits(chosen)
        for name in ("adam", "adamw"):
            seen = {}
            replay(
                with_optimizer(chosen, name, {}),
                watch_step=lambda fit, *_, seen=seen: seen.update(model=fit.model, steps=fit.steps),
            )
            trained[name] = seen["model"]
            scale, shift = (
                float(trained[name].get_parameter(tensor).detach().abs().mean())
                for tensor in TENSORS
            )
            print(
                f"hold_redundant={hold} {name}: mean |scale| {scale:.3f}, mean |shift| {shift:.3f}"
            )
        ours, theirs = (predict(model) for model in trained.values())
        apart = 100 * float(
            (ours - theirs).norm() / (theirs - predict(chosen.initial_model())).norm()
        )
        moved = [
            (
                trained["adam"].get_parameter(tensor) - trained["adamw"].get_parameter(tensor)
            ).detach()
            for tensor in TENSORS
        ]
        print(
            f"hold_redundant={hold}: Adam from AdamW after {seen['steps'] + 1} steps: logits "
            f"{apart:.1f} % of the way, the two tensors {float(torch.cat(moved).norm()):.2f}"
        )


if __name__ == "__main__":
    main()
