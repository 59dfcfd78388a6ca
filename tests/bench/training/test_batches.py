from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afor.bench.common.errors import DataError, LeakageError
from afor.bench.data.window_source import ArrayWindows
from afor.bench.training.batches import Side, epoch_batches, make_normalize

CPU = torch.device("cpu")


@pytest.fixture
def make_windows() -> Callable[..., ArrayWindows]:
    """Windows of a few subjects, each with an offset of its own."""

    def make(n_subjects: int = 6, per_subject: int = 30) -> ArrayWindows:
        subject = np.repeat(np.arange(n_subjects), per_subject)
        windows = np.random.default_rng(8).normal(size=(len(subject), 3, 32))
        windows += subject[:, None, None]
        return ArrayWindows(windows, np.arange(len(subject)) % 2, [f"s{i}" for i in subject])

    return make


def side(source: ArrayWindows, names: list[str]) -> Side:
    return Side("training", source, names, lambda inputs: inputs, CPU)


def test_a_batch_carries_its_windows_labels_and_subjects(make_windows) -> None:
    source = make_windows()
    chosen = side(source, ["s1", "s3"])
    batch = chosen.load(chosen.indices[[0, 45]])
    assert [source.subjects[code] for code in batch.subjects] == ["s1", "s3"]
    assert batch.labels.tolist() == source.labels[chosen.indices[[0, 45]]].tolist()
    assert torch.equal(batch.inputs, torch.from_numpy(source.gather(chosen.indices[[0, 45]])))
    assert batch.inputs.dtype == torch.float32


def test_a_batch_with_a_window_of_somebody_else_raises(make_windows) -> None:
    source = make_windows()
    chosen = side(source, ["s1", "s3"])
    stranger = int(np.flatnonzero(source.subject_codes == 2)[0])
    with pytest.raises(LeakageError, match="training batch holds a window of subject s2"):
        chosen.load(np.append(chosen.indices[:4], stranger))


def test_all_windows_of_the_named_subjects_and_no_others_belong_to_a_side(make_windows) -> None:
    source = make_windows()
    chosen = side(source, ["s1", "s3"])
    assert sorted(chosen.indices) == sorted(np.flatnonzero(np.isin(source.subject_codes, [1, 3])))
    in_order = [batch.labels for batch in chosen.in_order(7)]
    assert torch.cat(in_order).tolist() == chosen.labels.tolist()


def test_a_subject_the_data_does_not_have_is_named(make_windows) -> None:
    with pytest.raises(DataError, match="has no subject s9"):
        side(make_windows(), ["s1", "s9"])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batch_size=st.integers(2, 70),
    seed=st.integers(0, 2**62),
    together=st.none() | st.integers(1, 6),
)
def test_an_epoch_shows_every_window_once_except_a_last_single_one(
    make_windows, batch_size: int, seed: int, together: int | None
) -> None:
    source = make_windows(n_subjects=5, per_subject=9)
    chosen = side(source, ["s0", "s1", "s2", "s4"])
    batches = epoch_batches(chosen, batch_size, seed, together)
    seen = np.concatenate(batches)
    assert len(np.unique(seen)) == len(seen)
    assert set(seen) <= set(chosen.indices)
    groups = 1 if together is None else -(-4 // together)
    assert len(seen) >= len(chosen.indices) - groups
    assert all(2 <= len(batch) <= batch_size for batch in batches)
    if together is not None:
        assert all(len(np.unique(source.subject_codes[batch])) <= together for batch in batches)


def test_the_seed_decides_the_order(make_windows) -> None:
    chosen = side(make_windows(), ["s0", "s1"])

    def order(seed: int) -> list[list[int]]:
        return [batch.tolist() for batch in epoch_batches(chosen, 16, seed)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_few_subjects_per_batch_are_regrouped_every_epoch(make_windows) -> None:
    source = make_windows()
    chosen = side(source, list(source.subjects))
    pairs = {
        tuple(np.unique(source.subject_codes[batch]))
        for seed in range(20)
        for batch in epoch_batches(chosen, 60, seed, subjects_per_batch=2)
    }
    assert len(pairs) > 10


def test_the_zscore_uses_training_subjects_only(make_windows) -> None:
    source = make_windows()
    normalize = make_normalize("zscore", source, ["s0", "s1"], CPU)
    train = np.flatnonzero(source.subject_codes <= 1)
    inputs = normalize(torch.from_numpy(source.gather(train)))
    torch.testing.assert_close(inputs.mean(dim=(0, 2)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        inputs.std(dim=(0, 2), correction=0), torch.ones(3), atol=1e-5, rtol=0
    )
    others = normalize(torch.from_numpy(source.gather(np.flatnonzero(source.subject_codes == 5))))
    assert (others.mean(dim=(0, 2)) > 1).all()  # their own offset stays


def test_a_flat_channel_is_centred_and_stays_finite() -> None:
    windows = np.random.default_rng(0).normal(size=(4, 2, 8))
    windows[:, 1] = 5.0
    source = ArrayWindows(windows, [0, 1, 0, 1], ["a", "a", "b", "b"])
    for kind in ("zscore", "window"):
        found = make_normalize(kind, source, ["a"], CPU)(
            torch.from_numpy(source.gather(np.arange(4)))
        )
        assert torch.equal(found[:, 1], torch.zeros(4, 8))


def test_windows_can_be_normalised_one_by_one(make_windows) -> None:
    source = make_windows()
    normalize = make_normalize("window", source, ["s0"], CPU)
    found = normalize(torch.from_numpy(source.gather(np.array([0, 99]))))
    torch.testing.assert_close(found.mean(dim=-1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std(dim=-1, correction=0), torch.ones(2, 3), atol=1e-5, rtol=0)


def test_none_leaves_the_windows_alone(make_windows) -> None:
    source = make_windows()
    inputs = torch.from_numpy(source.gather(np.array([3])))
    assert torch.equal(make_normalize("none", source, ["s0"], CPU)(inputs.clone()), inputs)
