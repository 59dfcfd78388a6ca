import matplotlib as mpl
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.figures.style import (
    COLORS,
    COLUMN_MM,
    MARKERS,
    house_style,
    new_figure,
    save_figure,
)


def drawn():
    with house_style():
        figure, axes = new_figure(40)
        axes[0, 0].plot([1, 2], [3, 4], label="β₂ ± SD")
        axes[0, 0].legend()
    return figure


@pytest.mark.parametrize(
    ("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")]
)
def test_figures_are_written_in_three_forms_and_alike_each_time(tmp_path, suffix, start):
    paths = [tmp_path / "new" / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        save_figure(drawn(), path)
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(start)
    assert first == second


def test_a_figure_is_one_column_wide():
    assert drawn().get_figwidth() * 25.4 == pytest.approx(COLUMN_MM)


def test_other_forms_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.pdf, \.svg, \.png"):
        save_figure(drawn(), tmp_path / "a.gif")


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were():
    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before


def relative_luminance(color):
    def linear(value):
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(v) for v in mpl.colors.to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_seven_differ_in_colour_and_marker_and_show_on_white():
    assert set(COLORS) == set(MARKERS) == set(PAPER_OPTIMIZERS)
    assert len(set(COLORS.values())) == len(set(MARKERS.values())) == 7
    for color in COLORS.values():
        assert 1.05 / (relative_luminance(color) + 0.05) > 2
