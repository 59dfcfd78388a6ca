import pytest

from afor.bench.common.errors import AbsentError
from afor.bench.execution.sources import (
    absent_datasets,
    available_part,
    expected_sources,
    open_sources,
)
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import load_study, parse_study


@pytest.fixture
def half_present(small_study, tmp_path):
    """A study of synthetic subjects, which are always there, and two absent data sets."""
    text = small_study() + "".join(
        f'[[datasets]]\nname = "{name}"\nroot = "{tmp_path}"\n' for name in ("deap", "bci2a")
    )
    return parse_study(text)


def test_all_absent_data_sets_are_named_at_once_with_their_sources(half_present, cache_dir):
    assert list(absent_datasets(half_present)) == ["deap", "bci2a"]
    with pytest.raises(AbsentError) as error:
        open_sources(half_present, cache_dir)
    for part in ("2 of 3", "deap: DEAP", "bci2a: BCI", "s01.dat", "A01T.gdf", "--available"):
        assert part in str(error.value)
    assert not cache_dir.exists()  # nothing was prepared before


def test_the_available_part_keeps_the_name_and_the_keys(half_present, small_study, cache_dir):
    part = available_part(half_present)
    assert (part.name, [entry.name for entry in part.datasets]) == ("tiny", ["synthetic"])
    alone = parse_study(small_study())
    keys = [
        [run.key for run in make_plan(study, open_sources(study, cache_dir)).runs]
        for study in (part, alone)
    ]
    assert keys[0] == keys[1]


def test_nothing_available_is_an_error(tmp_path):
    study = load_study("paper")
    entries = [entry.model_copy(update={"root": str(tmp_path)}) for entry in study.datasets]
    with pytest.raises(AbsentError, match="3 of 3"):
        available_part(study.model_copy(update={"datasets": entries}))


def test_the_paper_is_planned_without_its_data(tmp_path):
    study = load_study("paper")
    entries = [entry.model_copy(update={"root": str(tmp_path)}) for entry in study.datasets]
    study = study.model_copy(update={"datasets": entries})
    plan = make_plan(study, expected_sources(study))
    assert len(plan.runs) == 7140
    sizes = {name: len(m.splits[0].train) for name, m in plan.manifests.items()}
    assert sizes == {"deap": 25, "bci2a": 6, "isruc": 70}


def test_an_absent_data_set_of_unknown_size_is_an_error(small_study, tmp_path):
    text = small_study().partition("[[datasets]]")[0]
    text += f'[[datasets]]\nname = "mine"\nuse = "folder"\nroot = "{tmp_path}/none"\n'
    with pytest.raises(AbsentError, match="no folder"):
        expected_sources(parse_study(text))
