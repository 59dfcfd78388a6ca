import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape


def test_a_shape_counts_its_channels():
    assert InputShape(("C3", "C4"), samples=10, rate_hz=5, classes=2).channels == 2
    assert InputShape.unnamed(7, samples=10, rate_hz=5, classes=2).channels == 7


def test_a_list_of_names_makes_a_hashable_shape():
    shape = InputShape(["C3", "C4"], samples=10, rate_hz=5, classes=2)  # type: ignore[arg-type]
    assert hash(shape) == hash(InputShape(("C3", "C4"), samples=10, rate_hz=5, classes=2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"channel_names": ()}, "at least one channel"),
        ({"channel_names": ("C3", "C3")}, "repeated: C3"),
        ({"samples": 0}, "samples must be at least 1, found 0"),
        ({"classes": 1}, "classes must be at least 2, found 1"),
        ({"rate_hz": 0.0}, "rate_hz must be positive"),
        ({"rate_hz": float("nan")}, "rate_hz must be positive"),
    ],
)
def test_an_impossible_shape_is_refused_with_the_rule(fields, message):
    valid = {"channel_names": ("C3", "C4"), "samples": 10, "rate_hz": 5.0, "classes": 2}
    with pytest.raises(ConfigError, match=message):
        InputShape(**(valid | fields))


def test_a_window_too_short_is_refused_with_the_minimum_in_samples_and_seconds():
    shape = InputShape.unnamed(2, samples=50, rate_hz=100, classes=2)
    with pytest.raises(
        ConfigError, match=r"at least 119 samples, found 50 \(0.5 s at 100 Hz\).*1.19"
    ):
        shape.require("ACRNN", samples=119)


def test_the_data_sets_have_the_shapes_of_the_paper():
    sizes = {k: (s.channels, s.samples, s.rate_hz, s.classes) for k, s in DATASET_SHAPES.items()}
    assert sizes == {
        "DEAP": (32, 128, 128, 2),
        "BCI IV 2a": (22, 250, 250, 4),
        "ISRUC": (6, 600, 200, 5),
        "PhysioNet MI": (64, 160, 160, 4),
    }
