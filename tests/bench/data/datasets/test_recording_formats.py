"""Each format of recordings: written, looked at by `afor data import`, and trained on."""

import mne
import numpy as np
import pytest
from scipy.io import savemat
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.data.loading import open_windows
from afor.bench.execution.runner import run_study
from afor.bench.store.database import open_store
from afor.bench.study.schema import parse_study
from afor.bench.study.toml_io import toml_text
from recording_files import write_gdf

CHANNELS = ["C3", "Cz", "C4", "Pz"]
RATE = 128
ONSETS = [1, 3, 5, 7, 9, 11]  # seconds
DURATION = 1  # second
CODES = [1, 2, 1, 2, 1, 2]


def signal_uv(seed):
    """Return noise in microvolts; a trial of class 2 starts with a step of 50."""
    signal = np.random.default_rng(seed).normal(0, 10, (len(CHANNELS), 13 * RATE))
    for onset, code in zip(ONSETS, CODES, strict=True):
        signal[:, onset * RATE] = 0.0 if code == 1 else 50.0
    return signal


def write_bdf(path, signal):
    edfio = pytest.importorskip("edfio")
    limit = (-500.0, 500.0)
    channels = [
        edfio.BdfSignal(row, RATE, label=name, physical_dimension="uV", physical_range=limit)
        for name, row in zip(CHANNELS, signal, strict=True)
    ]
    marks = [
        edfio.EdfAnnotation(o, DURATION, f"class {c}") for o, c in zip(ONSETS, CODES, strict=True)
    ]
    edfio.Bdf(channels, annotations=marks).write(path)


def write_gdf_file(path, signal):
    events = [(o * RATE, c, DURATION * RATE) for o, c in zip(ONSETS, CODES, strict=True)]
    write_gdf(path, CHANNELS, signal, RATE, events)


def write_set(path, signal):
    """Write an EEGLAB file with its data inside."""
    events = [
        {"type": f"class {c}", "latency": o * RATE + 1.0, "duration": float(DURATION * RATE)}
        for o, c in zip(ONSETS, CODES, strict=True)
    ]
    fields = [("type", object), ("latency", object), ("duration", object)]
    event = np.array([tuple(e.values()) for e in events], dtype=fields)
    locations = np.array([(name,) for name in CHANNELS], dtype=[("labels", object)])
    eeg = {
        "data": signal.astype(np.float32), "nbchan": len(CHANNELS), "srate": float(RATE),
        "trials": 1, "pnts": signal.shape[1], "xmin": 0.0, "event": event, "chanlocs": locations,
        "epoch": [], "setname": path.stem, "icawinv": [], "icasphere": [], "icaweights": [],
    }  # fmt: skip
    savemat(path, {"EEG": eeg}, appendmat=False)


def write_vhdr(path, signal):
    pybv = pytest.importorskip("pybv")
    events = [
        {"onset": o * RATE, "duration": DURATION * RATE, "description": c}
        for o, c in zip(ONSETS, CODES, strict=True)
    ]
    pybv.write_brainvision(
        data=signal * 1e-6, sfreq=RATE, ch_names=CHANNELS, fname_base=path.stem,
        folder_out=path.parent, events=events,
    )  # fmt: skip


def write_fif(path, signal):
    info = mne.create_info(CHANNELS, RATE, "eeg")
    raw = mne.io.RawArray(signal * 1e-6, info, verbose="error")
    raw.set_annotations(mne.Annotations(ONSETS, DURATION, [f"class {c}" for c in CODES]))
    raw.save(path, verbose="error")


WRITERS = {
    ".bdf": write_bdf,
    ".gdf": write_gdf_file,
    ".set": write_set,
    ".vhdr": write_vhdr,
    "_raw.fif": write_fif,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_folder_of_recordings_is_imported_and_trained_on(
    tmp_path, cache_dir, inline_engine, suffix
):
    root = tmp_path / "mine"
    root.mkdir()
    for seed, subject in enumerate(("anna", "bert", "carl")):
        WRITERS[suffix](root / f"{subject}{suffix}", signal_uv(seed))
    answer = CliRunner().invoke(app, ["data", "import", str(root)], catch_exceptions=False)
    assert "# subjects: anna, bert, carl" in answer.stdout
    assert "EEG: 4 channels: C3, Cz, C4, Pz" in answer.stdout
    study = parse_study(answer.stdout)
    entry = study.datasets[0]
    assert entry.use == "recordings"
    assert len(entry.options["classes"]) == 2
    options = {"trial_s": float(DURATION), **entry.options}  # if its events have no duration
    unfiltered = {**options, "band_hz": "none"}
    source = open_windows("recordings", root, options=unfiltered, cache_dir=cache_dir)
    assert source.subjects == ("anna", "bert", "carl")
    assert source.labels.tolist() == 3 * [code - 1 for code in CODES]
    windows = source.gather(range(6))
    assert windows.shape == (6, 4, RATE)
    expected = np.stack([signal_uv(0)[:, o * RATE : (o + 1) * RATE] for o in ONSETS])
    np.testing.assert_allclose(windows, expected, atol=0.05)  # microvolts, not volts; no shift

    content = study.model_dump(mode="json", exclude_none=True)
    content["optimizers"] = [{"name": "adam"}]
    content["training"] = {"max_epochs": 1, "patience": 1, "batch_size": 4}
    content["protocol"] = {"repetitions": 1}
    content["datasets"][0]["options"] = options
    small = parse_study(toml_text(content))
    store = tmp_path / "mine.db"
    run_study(small, toml_text(content), store, inline_engine, cache_dir=cache_dir)
    with open_store(store) as opened:
        assert [run.status for run in opened.runs()] == ["done"] * 3
