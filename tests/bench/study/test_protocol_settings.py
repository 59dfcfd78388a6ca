"""Study settings for clipping, contamination, orders and adaptation: keys, messages, stores."""

import pytest
import torch

from afor.bench.common.errors import ConfigError
from afor.bench.execution.runner import open_sources, run_study
from afor.bench.execution.verify import verify_runs
from afor.bench.store.database import open_store
from afor.bench.store.files import export_rows
from afor.bench.study.plan import make_plan
from afor.bench.study.roles import roles_of
from afor.bench.study.schema import parse_study

BURST = {"kind": "label_burst", "share": 0.1, "length": 5}


@pytest.fixture(scope="module")
def plan_of(small_study, window_cache):
    def plan(**changes):
        study = parse_study(small_study(**changes))
        return make_plan(study, open_sources(study, cache_dir=window_cache))

    return plan


def test_each_setting_is_in_the_key_when_it_is_set(plan_of) -> None:
    changes = [
        {},
        {"clip_norm": 0.5},
        {"order": "blocks"},
        {"order": "stream", "normalization": "window"},
        {"order": "stream", "normalization": "window", "passes": 2},
        {"contamination": BURST},
        {"contamination": {**BURST, "length": 4}},
        {"weights": "last"},
        {"adaptation": {"passes": 3}},
        {"adaptation": {"passes": 3, "state": "reset"}},
    ]
    keys = [plan_of(training=change).runs[0].key for change in changes]
    assert len(set(keys)) == len(changes)
    burst = plan_of(training={"contamination": BURST}).runs[0].spec["training"]["contamination"]
    assert burst == BURST


def test_an_optimizer_entry_has_its_own_clipping_and_state(plan_of, small_study) -> None:
    optimizers = [
        "adamw",
        {"name": "clipped", "use": "adamw", "clip_norm": 0.5},
        {"name": "renewed", "use": "adamw", "adaptation_state": "reset"},
    ]
    changes = {"optimizers": optimizers, "training": {"adaptation": {"passes": 2}}}
    plan = plan_of(**changes)
    specs = {run.method: run.spec["training"] for run in plan.runs if run.fold == 0}
    assert "clip_norm" not in specs["adamw"]
    assert specs["clipped"]["clip_norm"] == 0.5
    states = {name: spec["adaptation"].get("state", "kept") for name, spec in specs.items()}
    assert states == {"adamw": "kept", "clipped": "kept", "renewed": "reset"}
    roles = roles_of(parse_study(small_study(**changes)))
    assert [role.replicate_of for role in roles.values()] == ["", "", ""]  # none is an A/A control


@pytest.mark.parametrize(
    ("training", "sentence"),
    [
        ({"order": "streams"}, "training.order"),
        ({"order": "stream"}, "have not appeared yet"),
        ({"clip_norm": 0.0}, "training.clip_norm = 0.0"),
        ({"contamination": {"kind": "label_burst", "share": 0.1}}, "needs a length"),
        ({"contamination": {**BURST, "lengths": 3}}, 'Did you mean "length"'),
        ({"contamination": {**BURST, "kind": "bursts"}}, "training.contamination.kind"),
        ({"adaptation": {"state": "forgotten"}}, "training.adaptation.state"),
        ({"passes": 2}, 'passes = 2 belongs to order = "stream"'),
    ],
)
def test_an_unknown_value_gives_a_sentence(small_study, training, sentence) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_study(small_study(training=training), "mine.toml")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("mine.toml, line ")
    assert "\n" not in str(refused.value)


class KnowsSubject(torch.optim.SGD):
    """Must know whose windows a batch holds."""

    def for_subject(self, subject):
        pass


BY_SUBJECT = {"name": "by_subject", "use": f"{__name__}:KnowsSubject"}


def test_an_optimizer_that_does_not_fit_the_order_is_refused_before_anything_runs(plan_of) -> None:
    with pytest.raises(ConfigError, match='"by_subject" needs batches of one subject'):
        plan_of(optimizers=[BY_SUBJECT])
    assert plan_of(optimizers=[BY_SUBJECT], training={"order": "blocks"}).runs
    with pytest.raises(ConfigError, match="adapts to nobody"):
        plan_of(optimizers=[{"name": "adamw", "adaptation_state": "reset"}])


def test_a_stream_is_stored_exported_and_verified_bit_by_bit(
    small_study, window_cache, tmp_path, inline_engine
) -> None:
    training = {
        "order": "stream", "passes": 2, "normalization": "window", "clip_norm": 1.0,
        "contamination": BURST,
    }  # fmt: skip
    text = small_study(
        training=training, protocol={"only_folds": [0]}, optimizers=["adamw", "afor"]
    )
    study, path = parse_study(text), tmp_path / "stream.db"
    run_study(study, text, path, inline_engine, cache_dir=window_cache)
    with open_store(path) as store:
        results = store.results()
        assert {"nll", "prequential_nll", "prequential_accuracy"} <= set(results[0].metrics)
        rows = export_rows(store)
        assert rows[0]["prequential_nll"] == results[0].metrics["prequential_nll"]
        assert rows[0]["nll_before"] is None
        sources = open_sources(study, cache_dir=window_cache)
        verdicts = list(verify_runs(store, store.runs(), sources, tmp_path / "spool", workers=1))
    assert [verdict.is_same for verdict in verdicts] == [True, True]
