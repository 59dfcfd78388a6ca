import numpy as np
import pytest

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.catalog import get_dataset
from afor.bench.data.loading import open_windows

# MOABB itself uses names that MNE and pandas have deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
FAKE = {
    "n_sessions": 1, "n_runs": 1, "n_subjects": 2, "duration": 40, "n_events": 12, "seed": 3,
    "event_list": ["left_hand", "right_hand"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _needs_moabb():
    pytest.importorskip("moabb", reason="MOABB is not installed: pip install 'afor[moabb]'")


def open_fake(cache_dir, **options):
    return open_windows(
        "moabb:FakeDataset", cache_dir=cache_dir, options={"dataset_options": FAKE, **options}
    )


def test_moabbs_fake_data_set_gives_the_trials_moabb_gives(cache_dir):
    from moabb.datasets.fake import FakeDataset
    from moabb.paradigms import MotorImagery

    source = open_fake(cache_dir)
    paradigm = MotorImagery(events=["left_hand", "right_hand"], n_classes=2)
    x, y, _ = paradigm.get_data(FakeDataset(**FAKE), subjects=[2])
    assert source.subjects == ("1", "2")
    assert source.class_names == ("left_hand", "right_hand")
    assert source.channel_names == ("C3", "Cz", "C4")
    assert source.rate_hz == 128
    mine = source.indices_of(["2"])
    np.testing.assert_allclose(source.gather(mine), x, rtol=1e-4, atol=1e-4)
    assert [source.class_names[label] for label in source.labels[mine]] == list(y)


def test_paradigm_options_reach_moabb_and_windows_are_cut(cache_dir):
    source = open_fake(
        cache_dir, paradigm_options={"resample": 64}, window_samples=50, stride_samples=25
    )
    assert source.rate_hz == 64
    assert source.gather([0]).shape == (1, 3, 50)


def test_other_samples_give_another_fingerprint(cache_dir, tmp_path):
    """There is no source file to hash here, so the samples themselves count."""
    first = open_fake(cache_dir)
    second = open_fake(tmp_path / "other", dataset_options={**FAKE, "seed": 4})
    assert first.fingerprint != second.fingerprint
    assert first.prepared[0].data_sha256 != second.prepared[0].data_sha256


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("moabb:BNCI2014_01", {}, "Did you mean 'moabb:BNCI2014_001'"),
        ("moabb:FakeDataset", {"paradigm": "Telepathy"}, "no paradigm 'Telepathy'"),
        ("moabb:FakeDataset", {"dataset_options": {"colour": 1}}, "dataset_options are not"),
        ("moabb:FakeDataset", {"paradigm_options": {"colour": 1}}, "paradigm_options are not"),
    ],
)
def test_a_bad_name_or_option_is_a_setting_error(cache_dir, name, options, message):
    with pytest.raises(ConfigError, match=message):
        open_windows(name, cache_dir=cache_dir, options=options)


def test_a_failure_inside_moabb_is_a_data_error_that_names_the_subject(cache_dir, monkeypatch):
    from moabb.datasets.fake import FakeDataset

    def fail(*_args, **_kwargs):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(FakeDataset, "_get_single_subject_data", fail)
    with pytest.raises(DataError, match="FakeDataset subject 1: MOABB could not read it"):
        open_fake(cache_dir)


def test_every_moabb_data_set_of_the_registry_is_described():
    info = get_dataset("moabb:PhysionetMI").info
    assert info.name == "moabb:PhysionetMI"
    assert "MOABB" in info.where
