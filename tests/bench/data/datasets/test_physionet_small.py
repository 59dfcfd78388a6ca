from importlib.resources import files

import numpy as np
import pytest

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets import physionet_mi, physionet_small
from afor.bench.data.inspection.check import check_dataset
from afor.bench.data.loading import open_windows


@pytest.fixture(autouse=True)
def _fresh_archive():
    physionet_small._archive.cache_clear()
    yield
    physionet_small._archive.cache_clear()


def test_ten_people_are_here_without_a_folder(cache_dir):
    source = open_windows("physionet_small", subjects="all", cache_dir=cache_dir)
    assert len(source.subjects) == 10
    assert (source.class_names, source.rate_hz) == (("open", "closed"), 80.0)
    assert source.gather([0]).shape == (1, 8, 80)
    assert np.bincount(source.labels).tolist() == [600, 600]
    _, spread = source.channel_statistics(source.subjects)
    assert ((spread > 5) & (spread < 100)).all()  # microvolts


def test_closing_the_eyes_raises_alpha_over_the_occiput_of_most_people(cache_dir):
    source = open_windows(
        "physionet_small", options={"channels": ["O1", "O2"]}, cache_dir=cache_dir
    )
    windows = source.gather(range(len(source)))
    spectrum = np.abs(np.fft.rfft(windows, axis=2)) ** 2
    alpha = spectrum[:, :, 8:13].sum(axis=(1, 2))  # a bin is one hertz
    higher = [
        alpha[(source.subject_ids == s) & (source.labels == 1)].mean()
        > alpha[(source.subject_ids == s) & (source.labels == 0)].mean()
        for s in source.subjects
    ]
    assert sum(higher) >= 8


def test_a_check_finds_the_published_number_of_trials(cache_dir):
    report = check_dataset("physionet_small", cache_dir=cache_dir, subjects=None)
    assert report.faults == ()
    assert report.totals == report.published == {"open": 150, "closed": 150}


def test_an_unknown_channel_and_a_damaged_archive_are_refused(cache_dir, monkeypatch):
    with pytest.raises(ConfigError, match=r"no channel Cz\..* Accepted: F3, F4"):
        open_windows("physionet_small", options={"channels": ["Cz"]}, cache_dir=cache_dir)
    monkeypatch.setattr(physionet_small, "ARCHIVE_SHA256", "0" * 64)
    physionet_small._archive.cache_clear()
    with pytest.raises(DataError, match=r"damaged .* Install afor again"):
        open_windows("physionet_small", cache_dir=cache_dir)


def test_the_archive_is_small_and_comes_with_licence_and_citation():
    folder = files("afor.bench.data") / "embedded"
    assert len((folder / physionet_small.ARCHIVE).read_bytes()) <= 2_000_000
    notice = (folder / "README.md").read_text("utf-8")
    for words in ("ODC-By 1.0", "Schalk", "Goldberger", "## Changes"):
        assert words in notice


@pytest.mark.shared_data
def test_the_tool_makes_the_archive_from_the_published_recordings(
    physionet_root, load_script, monkeypatch
):
    tool = load_script("tools/physionet_small.py")
    monkeypatch.setattr(tool, "SUBJECTS", ("S003",))
    signals = tool.reduced_signals(physionet_root)
    for name, signal in signals.items():
        np.testing.assert_array_equal(signal, physionet_small._archive()[name])
    assert physionet_mi.DATASET.info.licence == physionet_small.DATASET.info.licence
