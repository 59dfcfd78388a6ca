import mne
import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.data.datasets.bci2a import CHANNELS as BCI2A
from afor.bench.data.datasets.deap import CHANNELS as DEAP
from afor.bench.data.montage import electrode_xy


def test_positions_agree_with_a_measured_head_in_order_and_side():
    names = sorted({*DEAP, *BCI2A})
    positions = mne.channels.make_standard_montage("biosemi64").get_positions()["ch_pos"]
    names = [name for name in names if name in positions]
    assert len(names) > 40
    real = np.array([positions[name][:2] for name in names])
    ours = np.array([electrode_xy(name) for name in names])
    for axis in (0, 1):
        assert np.corrcoef(real[:, axis], ours[:, axis])[0, 1] > 0.95
        side = np.abs(real[:, axis]) > 0.01
        assert (np.sign(real[side, axis]) == np.sign(ours[side, axis])).mean() > 0.9


def test_left_and_right_mirror_each_other():
    for left, right in (("C3", "C4"), ("Fp1", "Fp2"), ("PO3", "PO4"), ("T7", "T8")):
        assert electrode_xy(left) == (-electrode_xy(right)[0], electrode_xy(right)[1])


@pytest.mark.parametrize("name", ["EOG", "", "C", "X3", "3"])
def test_a_name_outside_the_system_is_refused(name):
    with pytest.raises(ConfigError, match="no electrode of the 10-10 system"):
        electrode_xy(name)
