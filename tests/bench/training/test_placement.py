import numpy as np
import pytest
import torch

from afor.bench.data.window_source import ArrayWindows
from afor.bench.training import batches as placement
from afor.bench.training.batches import Loader, Side, make_loader, read_ahead

CPU = torch.device("cpu")


@pytest.fixture
def windows():
    rng = np.random.default_rng(0)
    return ArrayWindows(
        rng.standard_normal((40, 3, 16)).astype(np.float32),
        np.arange(40) % 2,
        [f"p{i // 10}" for i in range(40)],
    )


def test_windows_on_the_device_are_those_of_the_source(windows, monkeypatch):
    monkeypatch.setattr(placement, "COPIED_AT_ONCE", 7)
    indices = np.array([39, 0, 7, 7, 13])
    expected = torch.from_numpy(windows.gather(indices))
    for loader in (Loader(windows, CPU, keep=keep) for keep in (True, False)):
        inputs = loader.inputs(indices)
        assert torch.equal(inputs, expected)
        inputs.zero_()  # a copy: the windows themselves stay
        assert torch.equal(loader.inputs(indices), expected)


def test_an_accelerator_keeps_what_fits_and_reads_ahead_what_does_not(windows, monkeypatch):
    meta = torch.device("meta")  # stands in for an accelerator
    monkeypatch.setattr(placement, "_kept", {})
    size = 40 * 3 * 16 * 4
    monkeypatch.setattr(placement, "free_bytes", lambda _: 2 * size - 1)
    assert make_loader(windows, meta)._kept is None
    assert make_loader(windows, meta).reads_ahead
    monkeypatch.setattr(placement, "free_bytes", lambda _: 2 * size)
    kept = make_loader(windows, meta)
    assert kept._kept is not None
    assert make_loader(windows, meta) is kept  # the next run uses it again
    assert not make_loader(windows, CPU).reads_ahead


def test_the_cpu_keeps_a_small_data_set_and_reads_a_large_one(windows, monkeypatch):
    monkeypatch.setattr(placement, "_kept", {})
    assert make_loader(windows, CPU)._kept is None  # arrays: in memory already
    windows.fingerprint = "prepared"
    kept = make_loader(windows, CPU)
    assert kept._kept is not None
    assert make_loader(windows, CPU) is kept
    indices = np.array([3, 1])
    assert torch.equal(kept.inputs(indices), torch.from_numpy(windows.gather(indices)))
    monkeypatch.setattr(placement, "KEPT_BYTES_ON_CPU", 40 * 3 * 16 * 4 - 1)
    windows.fingerprint = "other windows"
    assert make_loader(windows, CPU)._kept is None


def test_reading_ahead_keeps_the_order_and_passes_errors_on():
    order = [np.array([i]) for i in range(9)]
    assert [int(batch) for batch in read_ahead(lambda i: i[0], order)] == list(range(9))

    def fail(indices):
        if indices[0] == 3:
            raise ValueError("bad window")
        return indices[0]

    received = []
    with pytest.raises(ValueError, match="bad window"):
        received.extend(read_ahead(fail, order))
    assert received == [0, 1, 2]


def test_reading_ahead_stops_when_it_is_not_read_to_its_end():
    loaded = []
    batches = read_ahead(lambda i: loaded.append(int(i[0])), [np.array([i]) for i in range(50)])
    next(batches)
    batches.close()
    assert len(loaded) <= 1 + placement.READ_AHEAD


def test_batches_read_ahead_are_the_same(windows, monkeypatch):
    side = Side("training", windows, ["p0", "p2"], lambda inputs: inputs, CPU)
    order = [side.indices[:8], side.indices[8:]]
    direct = list(side.batches(order))
    monkeypatch.setattr(side._loader, "reads_ahead", True)
    for one, other in zip(direct, side.batches(order), strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)
