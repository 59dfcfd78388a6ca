import json

import numpy as np
import pytest

from afor.bench.data.datasets.synthetic import SyntheticSettings, load_subject
from afor.bench.data.prepared import (
    default_cache_dir,
    map_samples,
    read_subject,
    samples_path,
    subject_key,
    write_subject,
)

SOURCES = {"a.edf": "0" * 64}
KEY = subject_key("demo", 1, "s1", {"x": 1}, SOURCES)


@pytest.fixture
def stored(tmp_path):
    recording = load_subject(SyntheticSettings(trials=6), "sub-01")
    return recording, write_subject(tmp_path, KEY, recording, SOURCES)


def test_what_was_written_is_read_back(tmp_path, stored):
    recording, prepared = stored
    again = read_subject(tmp_path, KEY)
    assert again == prepared
    assert again.sources == SOURCES
    np.testing.assert_array_equal(map_samples(tmp_path, again)[0], recording.trials)
    assert again.class_counts() == recording.class_counts()


def test_mapped_trials_cannot_be_written_to(tmp_path, stored):
    trials, _ = map_samples(tmp_path, stored[1])
    with pytest.raises(ValueError, match="read-only"):
        trials[0, 0, 0] = 1


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [flip_a_byte, cut_in_half, empty, remove])
@pytest.mark.parametrize("which", ["samples", "description"])
def test_a_damaged_entry_counts_as_absent(tmp_path, stored, damage, which):
    path = samples_path(tmp_path, KEY)
    damage(path if which == "samples" else path.with_suffix(".json"))
    assert read_subject(tmp_path, KEY) is None


def test_a_changed_byte_with_the_old_time_stamp_is_found_by_verify(tmp_path, stored):
    import os

    path = samples_path(tmp_path, KEY)
    stat = path.stat()
    flip_a_byte(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert read_subject(tmp_path, KEY, verify=True) is None


def test_a_touched_but_whole_entry_is_used_and_its_time_noted(tmp_path, stored):
    import os

    path = samples_path(tmp_path, KEY)
    os.utime(path, ns=(10**9, 10**9))
    assert read_subject(tmp_path, KEY).data_mtime_ns == 10**9
    assert json.loads(path.with_suffix(".json").read_text())["data_mtime_ns"] == 10**9


def test_a_forged_label_in_the_description_is_found(tmp_path, stored):
    path = samples_path(tmp_path, KEY).with_suffix(".json")
    content = json.loads(path.read_text())
    content["labels"][0] = (content["labels"][0] + 1) % 4
    path.write_text(json.dumps(content))
    assert read_subject(tmp_path, KEY) is None


def test_samples_without_a_description_are_not_used(tmp_path, stored):
    """A process killed between the two renames leaves exactly this."""
    samples_path(tmp_path, KEY).with_suffix(".json").unlink()
    assert read_subject(tmp_path, KEY) is None


def test_the_rest_of_a_killed_writer_is_removed_and_a_living_ones_kept(tmp_path, stored):
    import os

    name = samples_path(tmp_path, KEY).name
    for rest, age in (("dead", 7200), ("alive", 10)):
        path = tmp_path / f"{name}.{rest}.tmp"
        path.write_bytes(b"half")
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    write_subject(tmp_path, KEY, stored[0], SOURCES)
    assert [path.name for path in tmp_path.glob("*.tmp")] == [f"{name}.alive.tmp"]


def test_every_part_of_the_key_counts():
    base = ("demo", 1, "s1", {"x": 1}, SOURCES)
    changed = [
        ("demo2", 1, "s1", {"x": 1}, SOURCES),
        ("demo", 2, "s1", {"x": 1}, SOURCES),
        ("demo", 1, "s2", {"x": 1}, SOURCES),
        ("demo", 1, "s1", {"x": 2}, SOURCES),
        ("demo", 1, "s1", {"x": 1}, {"a.edf": "1" * 64}),
    ]
    assert len({subject_key(*parts) for parts in (base, *changed)}) == 6


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("AFOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "afor"
