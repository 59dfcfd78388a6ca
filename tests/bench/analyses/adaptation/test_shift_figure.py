import numpy as np
import pytest

from afor.bench.analyses.adaptation.shift import ALL, CHAIN, Link, Shift, respond, shift_figure
from afor.bench.report.figures.style import save_figure


@pytest.fixture
def shift():
    """Return a made experiment: each quantity moves by a thousandth, the control does not."""
    rng = np.random.default_rng(0)
    forms = {}
    for form, size in (("blocked", 1e-3), ("shuffled", 0.0)):
        windows = 1e-4 * rng.standard_normal((12, 30, 3))
        windows[:, 10:] += size
        forms[form] = {ALL: respond(windows, 10, 10), "first": respond(windows[..., :1], 10, 10)}
    ends = ((8e-4, 1.2e-3), "not seen", (0.99, 0.999))
    links = tuple(Link(q, forms["blocked"], forms["shuffled"], 1e-3, *ends) for q in CHAIN)
    return Shift("made", 400, 12, 20, "paper", links, (1, 1))


def test_each_link_has_its_curves_and_its_layer_groups(shift, tmp_path) -> None:
    figure = shift_figure(shift)
    assert len(figure.axes) == 8
    titles = [axis.get_title(loc="left") for axis in figure.axes[::2]]
    assert titles[0] == "residual: the paper says it rises; not seen"
    assert titles[3].startswith("β₂: the paper says it falls")
    last = figure.axes[6]  # a thousandth of beta2 is a ninth of its range, in percent
    blocked = next(line for line in last.get_lines() if line.get_label() == "blocks of subjects")
    assert blocked.get_ydata()[-1] == pytest.approx(100 / 9, rel=0.1)
    assert [t.get_text() for t in figure.axes[1].get_yticklabels()] == [ALL, "first"]
    save_figure(figure, tmp_path / "shift.pdf")
    assert (tmp_path / "shift.pdf").stat().st_size > 1000
