import pytest

from afor.bench.analyses.replay import find_run, replay
from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import parse_study
from afor.bench.training.execute import train_run


@pytest.fixture
def study(small_study):
    return parse_study(small_study(protocol={"repetitions": 2}))


def test_a_watched_run_gives_the_numbers_of_the_study(study, tmp_path) -> None:
    chosen = find_run(study, fold=1, repetition=1, cache_dir=tmp_path)
    steps, epochs = [], []
    record = replay(
        chosen,
        watch=lambda *seen: epochs.append(seen),
        watch_step=lambda fit, batch, loss: steps.append((fit.steps, len(batch.labels), loss)),
    )
    assert repr(record.numbers()) == repr(train_run(chosen.planned.spec, chosen.source).numbers())
    assert len(epochs) == len(record.history)
    assert len(steps) == record.steps
    assert [number for number, _, _ in steps] == list(range(record.steps))
    assert set(record.beta2_by_tensor) == {n for n, _ in chosen.make_model().named_parameters()}
    assert chosen.label == "synthetic, eegnet, afor, fold 1, repetition 1"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"optimizer": "afro"}, 'Did you mean "afor"'),
        ({"backbone": "hslt"}, 'no backbone "hslt". It has eegnet'),
        ({"dataset": "deap"}, 'no data set "deap"'),
        ({"fold": 9}, "Folds: 0 to 3; repetitions: 0 to 1"),
    ],
)
def test_a_run_that_is_not_there_is_told_with_what_is(study, choice, words, tmp_path) -> None:
    with pytest.raises(ConfigError, match=words):
        find_run(study, cache_dir=tmp_path, **choice)


def test_the_learning_rate_is_that_of_the_search_that_the_study_names(
    study, tmp_path, monkeypatch
) -> None:
    rates = {"": None, "search": lambda dataset, backbone, optimizer: 0.0123}  # noqa: ARG005
    monkeypatch.setattr("afor.bench.analyses.replay.searched_rates", rates.__getitem__)
    of_search = find_run(study.model_copy(update={"lr_from": "search"}), cache_dir=tmp_path)
    assert of_search.planned.rate == 0.0123
    assert find_run(study, cache_dir=tmp_path).planned.rate == study.training.lr
