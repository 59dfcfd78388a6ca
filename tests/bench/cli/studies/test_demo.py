import json

from afor.bench.execution.sources import open_sources
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.study import schema as config
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import load_study


def test_the_demo_is_a_study_of_seven_optimizers_with_real_folds_and_draws(tiny):
    study = load_study("demo")
    plan = make_plan(study, open_sources(study, tiny.cache))
    names = [o.name for o in study.optimizers]
    assert [name for name in names if name != "adam_seed_1"] == list(PAPER_OPTIMIZERS)
    assert "adam_seed_1" in names  # the A/A control that gives the noise floor
    assert {(e.folds, e.repetitions) for e in plan.expected()} == {(10, 1)}
    assert len(plan.runs) == 8 * 10
    for other, use in (("demo-synthetic", "synthetic"), ("demo-people", "physionet_mi")):
        assert [o.name for o in load_study(other).optimizers] == names
        assert load_study(other).datasets[0].use == use


def test_the_demo_ends_with_the_table_and_resumes(tiny, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    # The demo itself takes minutes; here its study is one of milliseconds.
    tiny.write(name="demo", optimizers=("adam", "afor"), subjects=3, repetitions=1)
    text = tiny.file.read_text()
    monkeypatch.setattr(config, "preset_text", lambda _name: text)
    first = tiny.call(command="demo", study="--jobs=2")
    assert "6 done (6 trained now)" in first
    assert "Data: synthetic subjects" in first
    assert "Acc" in first
    assert (tiny.folder / "results" / "demo.html").exists()
    assert "AFOR" in first
    assert first.count("Next: ") == 1
    again = tiny.call(command="demo", study="--jobs=2")
    assert "(0 trained now)" in again
    content = json.JSONDecoder().raw_decode(tiny.call("--json", study="demo"))[0]
    assert (content["study"], content["done"], content["trained"]) == ("demo", 6, 0)
    assert content["report"] == "results/demo.html"
    assert len(content["verdicts"]) == 1
