from afor.bench.cli.results.stores import describe_run
from afor.bench.execution.sources import open_sources
from afor.bench.execution.status import remaining_s, status_of
from afor.bench.store.database import open_store
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import load_study


def test_counts_are_those_of_the_grid_and_time_is_told_from_measured_runs(tiny):
    tiny.write(optimizers=("a", "raiser", "diverger"), subjects=3, repetitions=1)
    tiny.run_here(part=(1, 2))
    study = load_study(str(tiny.file))
    plan = make_plan(study, open_sources(study))
    with open_store(tiny.store, write=True) as store:
        store.set_plan(plan, "")
        (found,) = status_of(store)["studies"]
        assert (found["planned"], found["open"]) == (9, 4)
        assert sum(found[word] for word in ("done", "diverged", "failed")) == 5
        by_name = {cell["method"]: cell for cell in found["conditions"]}
        assert by_name["raiser"]["failed"] + by_name["raiser"]["open"] == 3
        left = remaining_s(store, plan.runs)
        assert left is not None
        assert 0 < left < 1  # four runs of a millisecond each
        waiting = next(cell for cell in store.runs() if cell.status == "open")
        assert "not trained yet" in describe_run(waiting.key, None, [waiting])
