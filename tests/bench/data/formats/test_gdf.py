import struct

import mne
import numpy as np
import pytest

from afor.bench.common.errors import DataError
from afor.bench.data.formats.gdf import read_gdf
from recording_files import write_gdf

EVENTS = [(0, 768, 10), (500, 769, 0), (600, 32766, 0)]


@pytest.fixture
def path(tmp_path):
    signal = np.random.default_rng(0).normal(0, 20, (3, 800))
    signal[:, 300:400] = np.nan
    write_gdf(tmp_path / "A01T.gdf", ["EEG-Fz", "EEG", "EOG-left"], signal, 250, EVENTS)
    return tmp_path / "A01T.gdf"


def test_signal_and_events_are_those_mne_reads_except_for_missing_samples(path):
    gdf = read_gdf(path)
    raw = mne.io.read_raw_gdf(path, preload=True, verbose="error")
    theirs = raw.get_data() * 1e6
    assert np.isnan(gdf.signal_uv[:, 300:400]).all()
    kept = np.r_[0:300, 400:800]
    np.testing.assert_allclose(gdf.signal_uv[:, kept], theirs[:, kept], atol=1e-9)
    assert gdf.rate_hz == raw.info["sfreq"]
    assert gdf.labels == ("EEG-Fz", "EEG", "EOG-left")
    assert gdf.positions.tolist() == np.round(raw.annotations.onset * 250).tolist()
    assert gdf.codes.tolist() == [int(text) for text in raw.annotations.description]


def test_one_channel_at_its_minimum_is_a_value_and_not_missing(tmp_path):
    signal = np.random.default_rng(0).normal(0, 20, (2, 100))
    signal[0, 50] = np.nan  # written as the digital minimum
    write_gdf(tmp_path / "a.gdf", ["a", "b"], signal, 250, [])
    assert np.isfinite(read_gdf(tmp_path / "a.gdf").signal_uv).all()


FAULTS = {
    "magic": (0, b"GDF 2.20", "expected 'GDF 1.99'"),
    "channels": (252, struct.pack("<H", 25), "truncated"),
    "no channels": (252, struct.pack("<H", 0), "0 channels"),
    "records": (236, struct.pack("<q", 10**12), "truncated"),
    "negative records": (236, struct.pack("<q", -5), "-5 records"),
    "duration": (244, struct.pack("<2I", 0, 250), "damaged header"),
    "samples": (256 + 216 * 3, struct.pack("<i", 0), "damaged"),
    "unit": (256 + 102 * 3, struct.pack("<H", 7), "a channel has the unit code 7"),
    "type": (256 + 220 * 3, struct.pack("<i", 16), "int16"),
    "range": (256 + 104 * 3, struct.pack("<d", np.nan), "impossible range"),
    "digital range": (256 + 120 * 3, struct.pack("<d", np.inf), "impossible range"),
    "events": (256 * 4 + 800 * 6, b"\x09", "no event table"),
    "event count": (256 * 4 + 800 * 6 + 1, b"\xff\xff", "damaged"),
}


@pytest.mark.parametrize(("at", "content", "message"), FAULTS.values(), ids=FAULTS)
def test_a_broken_header_is_refused_with_file_and_fault(path, at, content, message):
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as error:
        read_gdf(path)
    assert "A01T.gdf" in str(error.value)


@pytest.mark.parametrize("size", [0, 5, 100, 256, 900, 3000])
def test_a_file_cut_anywhere_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"A01T\.gdf"):
        read_gdf(path)


def test_an_oversized_file_is_refused_unread(path, monkeypatch):
    monkeypatch.setattr("afor.bench.data.formats.gdf.MAX_BYTES", 1000)
    with pytest.raises(DataError, match="more than the limit of 1000"):
        read_gdf(path)


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_gdf(tmp_path / "none.gdf")
