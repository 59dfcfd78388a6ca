import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.store.database import open_store
from afor.bench.store.learning_rates import SearchedRates, best_rates, search_study
from afor.bench.study.schema import OptimizerEntry, load_study

SEARCH = "[search]\ngrid = [1e-4, 1e-3, 3e-3]\n"


def search(tiny, optimizers=("adam",), **settings):
    tiny.write(name="search", optimizers=optimizers, draws=1, extra=SEARCH, **settings)
    tiny.run_inline()
    with open_store(tiny.store) as store:
        return best_rates(store)


def test_the_rate_of_the_highest_validation_accuracy_is_chosen(tiny):
    rates = search(tiny, best_lr=2.9e-3)
    assert rates == {("synthetic", "tiny", "adam"): 3e-3}


def test_of_equal_rates_the_smaller_is_chosen(tiny):
    assert search(tiny, best_lr=2e-3) == {("synthetic", "tiny", "adam"): 1e-3}  # 1e-3 away, both


def test_a_search_with_one_optimizer_serves_all_and_with_several_each_has_its_own(tiny):
    adam, mine = OptimizerEntry(name="adam"), OptimizerEntry(name="afor_again", use="afor")
    shared = SearchedRates({("deap", "eegnet", "adam"): 0.1})
    assert shared("deap", "eegnet", mine) == 0.1
    each = SearchedRates({("deap", "eegnet", "adam"): 0.1, ("deap", "eegnet", "afor"): 0.2})
    assert each("deap", "eegnet", adam) == 0.1
    assert each("deap", "eegnet", mine) == 0.2
    with pytest.raises(ConfigError, match=r"none for deap × hslt.*covers deap × eegnet"):
        each("deap", "hslt", adam)
    with pytest.raises(ConfigError, match='"mars"'):
        each("deap", "eegnet", OptimizerEntry(name="mars"))


def test_a_search_that_is_not_complete_or_not_there_is_refused(tiny):
    tiny.write(name="search", optimizers=("adam", "raiser"), draws=1, extra=SEARCH)
    tiny.run_inline()
    with open_store(tiny.store) as store, pytest.raises(ConfigError, match=r"raiser.*is failed"):
        best_rates(store)
    other = tiny.folder / "other.db"
    tiny.write()
    tiny.run_inline(other)
    with open_store(other) as store, pytest.raises(ConfigError, match="no search"):
        best_rates(store)


def test_a_diverged_run_never_wins(tiny):
    rates = search(tiny, optimizers=("diverger",))
    assert rates == {("synthetic", "tiny", "diverger"): 1e-4}  # all equal: the smallest


def test_the_search_of_a_study_covers_its_optimizers_but_not_its_controls():
    made = search_study(load_study("controls"))
    assert made.search is not None
    assert made.search.grid == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
    assert (made.training.max_epochs, made.training.patience) == (50, 15)
    assert (made.protocol.only_folds, made.protocol.only_draws) == ([0], [0])
    assert [o.name for o in made.optimizers] == [
        "adam",
        "adamw",
        "afor_fixed_0999",
        "adamw_09945",
        "afor",
    ]


def test_the_papers_search_is_the_one_that_lr_per_optimizer_makes():
    preset = load_study("lr-search")
    made = search_study(load_study("paper"))
    assert made.search == preset.search
    assert made.training == preset.training
    assert made.protocol == preset.protocol


@pytest.mark.usefixtures("train_here")
def test_rates_of_a_search_feed_another_study(tiny):
    tiny.write(name="search", optimizers=("a",), draws=1, extra=SEARCH, best_lr=3e-3)
    printed = tiny.call("--store", tiny.folder / "search.db")
    assert "15 done" in printed
    assert "learning rate of synthetic × tiny × a: 0.003" in printed
    assert "--lr-from" in printed
    tiny.write(optimizers=("a", "b"), best_lr=3e-3, extra=f'lr_from = "{tiny.folder}/search.db"')
    tiny.call()
    with open_store(tiny.store) as store:
        assert {cell.rate for cell in store.runs()} == {3e-3}


@pytest.mark.usefixtures("train_here")
def test_every_optimizer_can_have_a_search_of_its_own(tiny):
    tiny.write(optimizers=("a", "b"), best_lr=1e-2)
    text = tiny.call("--lr-per-optimizer")
    assert "learning rate of synthetic × tiny × b: 0.01" in text
    with open_store(tiny.store) as store:
        assert {cell.rate for cell in store.runs("tiny")} == {1e-2}
        assert len(store.runs("tiny-lr-search")) == 2 * 5
        assert {result.study for result in store.results()} == {"tiny"}
    seen = len(tiny.trainings())
    tiny.call("--lr-per-optimizer")
    assert len(tiny.trainings()) == seen
