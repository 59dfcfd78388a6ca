import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.data.splits import Split
from afor.bench.training.run_spec import RunSettings

SPLIT = Split(2, 1, ("a",), ("b",), ("c",))


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": 0.0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"weight_decay": -1e-4},
        {"batch_size": 1},
        {"max_epochs": 0},
        {"patience": 0},
        {"threads": 0},
        {"subjects_per_batch": 0},
    ],
)
def test_values_that_cannot_be_used_are_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"^{next(iter(bad))} = .* is not valid: input should"):
        RunSettings(**{"dataset": "x", "split": SPLIT, "optimizer": "adam", "lr": 1e-3, **bad})


def test_the_defaults_are_those_of_the_paper() -> None:
    settings = RunSettings(dataset="x", split=SPLIT, optimizer="adam", lr=1e-3)
    assert (settings.weight_decay, settings.max_epochs, settings.patience) == (1e-4, 200, 30)


def test_seeds_know_fold_and_draw_but_not_the_optimizer() -> None:
    adam = RunSettings(dataset="x", split=SPLIT, optimizer="adam", lr=1e-3)
    afor = RunSettings(dataset="x", split=SPLIT, optimizer="afor", lr=3e-3)
    assert adam.seed("weights") == afor.seed("weights")
    other = RunSettings(
        dataset="x", split=Split(2, 0, ("a",), ("b",), ("c",)), optimizer="adam", lr=1e-3
    )
    assert adam.seed("weights") != other.seed("weights")
