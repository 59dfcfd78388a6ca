from dataclasses import replace

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.store.database import open_store
from afor.bench.store.learning_rates import (
    SearchedRates,
    search_study,
    small_search,
)
from afor.bench.study.schema import OptimizerEntry, load_study, parse_study

SEARCH = "[search]\ngrid = [1e-4, 1e-3, 3e-3]\n"


def search(tiny, optimizers=("adam",), **settings):
    tiny.write(name="search", optimizers=optimizers, repetitions=1, extra=SEARCH, **settings)
    tiny.run_inline()
    with open_store(tiny.store) as store:
        return SearchedRates.of(store).rates


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
    tiny.write(name="search", optimizers=("adam", "raiser"), repetitions=1, extra=SEARCH)
    tiny.run_inline()
    with open_store(tiny.store) as store, pytest.raises(ConfigError, match=r"raiser.*is failed"):
        SearchedRates.of(store)
    other = tiny.folder / "other.db"
    tiny.write()
    tiny.run_inline(other)
    with open_store(other) as store, pytest.raises(ConfigError, match="no search"):
        SearchedRates.of(store)


@pytest.mark.parametrize(("loss", "doubted"), [(1.0, False), (1.37, True), (float("nan"), False)])
def test_a_search_in_which_nothing_was_learned_says_so_instead_of_recommending_a_rate(
    tiny, monkeypatch, loss, doubted
):
    search(tiny, best_lr=3e-3)
    with open_store(tiny.store) as store:
        read = store.run

        def run(key):  # with this validation loss, of 4 classes
            found = read(key)
            (epoch,) = found.record.history
            record = replace(found.record, history=(replace(epoch, validation_loss=loss),))
            return replace(found, record=replace(record, train_class_counts=(1,) * 4))

        monkeypatch.setattr(store, "run", run)
        rates = SearchedRates.of(store)
    (line,) = rates.doubts()
    assert ("none was better than guessing" in line) == doubted
    assert ("the largest of those tried" in line) == (not doubted)


def test_a_diverged_run_never_wins(tiny):
    rates = search(tiny, optimizers=("diverger",))
    assert rates == {("synthetic", "tiny", "diverger"): 1e-4}  # all equal: the smallest


def test_the_search_of_a_study_covers_its_optimizers_but_not_its_controls():
    made = search_study(load_study("controls"))
    assert made.search is not None
    assert made.search.grid == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
    assert (made.training.max_epochs, made.training.patience) == (50, 15)
    assert (made.protocol.only_folds, made.protocol.only_repetitions) == ([0], [0])
    assert [o.name for o in made.optimizers] == [
        "adam",
        "adamw",
        "afor_fixed_0999",
        "adamw_09945",
        "afor",
    ]


def test_the_papers_search_is_the_one_that_lr_each_makes():
    preset = load_study("lr-search")
    made = search_study(load_study("paper"))
    assert made.search == preset.search
    assert made.training == preset.training
    assert made.protocol == preset.protocol


@pytest.mark.usefixtures("train_here")
def test_rates_of_a_search_feed_another_study(tiny):
    tiny.write(name="search", optimizers=("a",), repetitions=1, extra=SEARCH, best_lr=3e-3)
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
    text = tiny.call("--lr", "each")
    assert "learning rate of synthetic × tiny × b: 0.01" in text
    with open_store(tiny.store) as store:
        assert {cell.rate for cell in store.runs("tiny")} == {1e-2}
        assert len(store.runs("tiny-lr-search")) == 2 * 5
        assert {result.study for result in store.results()} == {"tiny"}
    seen = len(tiny.trainings())
    tiny.call("--lr", "each")
    assert len(tiny.trainings()) == seen


SEARCHED = "lr_search = [1e-3, 3e-3, 1e-2]"


@pytest.mark.usefixtures("train_here")
def test_a_study_may_begin_with_a_search_by_its_first_method(tiny):
    tiny.write(optimizers=("a", "b"), best_lr=3e-3, extra=SEARCHED)
    planned = tiny.call(command="plan")
    assert "the learning rate is searched first: a at 0.001, 0.003, 0.01 on 2 folds" in " ".join(
        planned.split()
    )
    text = tiny.call()
    assert "The learning rate is searched first: a at 0.001, 0.003, 0.01 on 2 folds, 6 runs" in text
    assert "--lr RATE skips it" in text
    assert "of those tried" not in text
    with open_store(tiny.store) as store:
        assert {cell.rate for cell in store.runs("tiny")} == {3e-3}
        assert len(store.runs("tiny-lr-search")) == 6
    assert "learning rate is searched" not in tiny.call(command="plan")


@pytest.mark.usefixtures("train_here")
@pytest.mark.parametrize(
    ("best", "words"),
    [
        (1e-2, "0.01, the largest of those tried: a larger one may be better; try lr_search = "
               "[0.01, 0.03, 0.09]"),
        (1e-3, "0.001, the smallest of those tried: a smaller one may be better; try lr_search = "
               "[0.0001, 0.0003, 0.001]"),
    ],
)  # fmt: skip
def test_a_rate_at_the_edge_of_the_search_is_said_after_the_run(tiny, best, words):
    tiny.write(optimizers=("a", "b"), best_lr=best, extra=SEARCHED)
    out = tiny.call()
    # Once when the search ends and once below the verdict.
    assert " ".join(out.split()).count(words) == 2
    assert "edges" not in out
    tiny.write(optimizers=("a", "b"), best_lr=best, extra=f'lr_from = "{tiny.store}"')
    assert words in " ".join(tiny.call("--store", tiny.folder / "other.db").split())


@pytest.mark.usefixtures("train_here")
def test_a_rate_on_the_command_line_skips_the_search(tiny):
    tiny.write(optimizers=("a", "b"), extra=SEARCHED)
    text = tiny.call("--lr", "0.02", "--store", tiny.store)
    assert "searched first" not in text
    with open_store(tiny.store) as store:
        assert {cell.rate for cell in store.runs()} == {0.02}
        assert not any(cell.is_search for cell in store.runs())


def test_a_small_search_covers_the_networks_of_methods_and_keeps_to_the_folds_of_the_study():
    demo = load_study("demo")
    folds = demo.protocol.model_copy(update={"only_folds": [3, 1, 2]})
    made = small_search(demo.model_copy(update={"protocol": folds, "lr_search": [0.1, 0.2]}))
    assert [entry.name for entry in made.optimizers] == ["adam"]
    assert (made.protocol.only_folds, made.search.grid) == ([3, 1], [0.1, 0.2])
    assert [e.name for e in small_search(demo, "afor").optimizers] == ["afor"]
    methods = [{"name": n, "optimizer": "adam", "backbone": n} for n in ("eegnet", "hslt")]
    networks = parse_study({"name": "x", "datasets": ["synthetic"], "methods": methods})
    assert [e.name for e in small_search(networks).optimizers] == ["eegnet", "hslt"]


def test_a_search_and_a_rate_exclude_each_other():
    parts = {"datasets": ["synthetic"], "backbones": ["eegnet"], "optimizers": ["afor"]}
    with pytest.raises(ConfigError, match="exclude each other"):
        parse_study({"name": "x", **parts, "lr_search": [0.1], "training": {"lr": 0.1}})
