import json
import random

import pytest

from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Ended
from afor.bench.execution.runner import run_study
from afor.bench.store.database import open_or_create, open_store
from afor.bench.store.spool import spool_folder, wrap, write_spool
from afor.bench.study.schema import parse_study


class Shuffled:
    """An engine that takes the jobs in another order."""

    def __init__(self, workers):
        self.workers = workers

    def run(self, jobs, sources, spool):
        shuffled = random.Random(0).sample(jobs, len(jobs))
        yield from LocalEngine(self.workers).run(shuffled, sources, spool)


class Interrupted:
    """An engine that ends after some runs, as a driver that was stopped."""

    def __init__(self, after):
        self.after = after

    def run(self, jobs, sources, spool):
        ended = 0
        for event in LocalEngine(1).run(jobs, sources, spool):
            yield event
            ended += isinstance(event, Ended)
            if ended == self.after:
                raise KeyboardInterrupt


def merge_shards(tiny, target, of, engine=None):
    """Run a study in parts, a store each, and bring them together."""
    with open_or_create(target) as merged:
        for number in range(1, of + 1):
            part = target.with_name(f"part-{number}.db")
            tiny.run_here(part, part=(number, of), engine=engine)
            with open_store(part) as other:
                merged.merge(other)


def test_numbers_are_the_same_across_workers_order_resume_and_shards(tiny):
    folder = tiny.folder / "results"
    tiny.run_here(folder / "one.db", workers=1)
    expected = tiny.numbers(folder / "one.db")
    assert len(expected) == 20
    tiny.run_here(folder / "four.db", workers=4)
    tiny.run_here(folder / "shuffled.db", engine=Shuffled(2))
    with pytest.raises(KeyboardInterrupt):
        tiny.run_here(folder / "resumed.db", engine=Interrupted(7))
    assert len(tiny.numbers(folder / "resumed.db")) == 7
    assert tiny.run_here(folder / "resumed.db").trained == 13
    merge_shards(tiny, folder / "merged.db", 3)
    with open_store(folder / "merged.db") as merged, open_store(folder / "one.db") as one:
        assert {c.key for c in merged.runs()} == {c.key for c in one.runs()}
        assert sorted(map(str, merged.expected())) == sorted(map(str, one.expected()))
    for name in ("four", "shuffled", "resumed", "merged"):
        assert tiny.numbers(folder / f"{name}.db") == expected, name


def test_a_real_network_gives_the_same_bits_across_workers_order_resume_and_shards(
    tiny, real_study, inline_engine
):
    # As the test above; every worker takes seconds to import torch, so that two workers take the
    # runs in another order, and it is the first of two shards that is interrupted in a worker and
    # resumed in this process.
    real_study()
    folder = tiny.folder / "results"
    tiny.run_inline(folder / "one.db")
    expected = tiny.numbers(folder / "one.db")
    assert len(expected) == 6
    with open_store(folder / "one.db") as store:
        histories = {c.method: store.run(c.key).record.history for c in store.runs()}
        assert store.run(store.runs()[0].key).environment["torch"]
    assert len({h[0].train_loss for h in histories.values()}) == 3  # three optimizers, not one
    tiny.run_here(folder / "two-shuffled.db", engine=Shuffled(2))
    with pytest.raises(KeyboardInterrupt):
        tiny.run_here(folder / "part-1.db", part=(1, 2), engine=Interrupted(2))
    assert len(tiny.numbers(folder / "part-1.db")) == 2
    merge_shards(tiny, folder / "merged.db", 2, inline_engine)
    for name in ("two-shuffled", "merged"):
        assert tiny.numbers(folder / f"{name}.db") == expected, name


def test_a_complete_study_trains_nothing_and_the_splits_lie_beside_it(tiny):
    assert tiny.run_inline().trained == 20
    summary = tiny.run_inline()
    assert (summary.trained, summary.done, summary.open) == (0, 20, 0)
    text = (tiny.store.with_name("tiny.db.splits") / "synthetic.json").read_text("utf-8")
    assert len(json.loads(text)["splits"]) == 10


def test_a_study_that_grows_trains_only_what_is_new(tiny):
    tiny.run_inline()
    tiny.write(optimizers=("a", "b", "c"))
    summary = tiny.run_inline()
    assert (summary.planned, summary.trained) == (30, 10)
    tiny.write(optimizers=("a",))
    assert tiny.run_inline().planned == 10
    with open_store(tiny.store) as store:
        assert len(store.results()) == 10  # what is no longer planned is kept but not counted
        assert len(store.statuses()) == 30


def test_runs_that_two_studies_share_are_trained_once(tiny):
    tiny.run_inline()
    tiny.write(name="second", optimizers=("b", "c"))
    assert tiny.run_inline().trained == 10
    with open_store(tiny.store) as store:
        assert {r.study for r in store.results()} == {"tiny", "second"}
        assert len(store.results("second")) == 20


def test_a_run_of_another_version_in_the_spool_is_put_aside(tiny):
    tiny.run_here()
    spool = spool_folder(tiny.store)
    (spool / "new.run").write_bytes(wrap(b'{"format": 99}'))
    assert tiny.run_inline().trained == 0
    assert [p.name[:7] for p in (spool / "quarantine").iterdir()] == ["new.run"]


class Updated:
    """An engine whose workers use a newer version of afor than the driver."""

    def run(self, jobs, sources, spool):  # noqa: ARG002
        content = b'{"format": 99}'
        yield Ended(jobs[0].key, content, write_spool(spool, jobs[0].key, content))


def test_workers_of_another_version_end_the_study_with_a_sentence_and_keep_their_file(tiny):
    with pytest.raises(EngineError, match=r"another version of afor.*nothing finished is lost"):
        tiny.run_here(engine=Updated())
    assert len(list(spool_folder(tiny.store).glob("*.run"))) == 1


def test_a_device_that_is_not_here_is_refused_before_anything_is_prepared(
    small_study, tmp_path, inline_engine
):
    text = small_study(device="cuda:999")
    with pytest.raises(ConfigError, match='device "cuda:999" is not available on this machine'):
        run_study(parse_study(text), text, tmp_path / "s.db", inline_engine, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
