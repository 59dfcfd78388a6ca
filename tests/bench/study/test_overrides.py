import re
import tomllib

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.study.overrides import Overrides, overridden
from afor.bench.study.schema import parse_study, preset_names, preset_text, study_text


def changed(preset, **changes):
    return parse_study(overridden(*study_text(preset), Overrides(**changes)))


def test_nothing_changed_leaves_the_text_as_it_is():
    assert overridden(preset_text("paper"), "paper", Overrides()) == preset_text("paper")


def test_a_preset_runs_on_another_data_set_and_backbone_under_another_name():
    study = changed(
        "ablation",
        dataset=["synthetic"],
        backbone=["hslt"],
        epochs=12,
        setting=["protocol.repetitions=2"],
    )
    before = parse_study(preset_text("ablation"))
    assert study.name == "ablation-synthetic-hslt"
    assert [d.name for d in study.datasets] == ["synthetic"]
    assert [b.name for b in study.backbones] == ["hslt"]
    assert study.optimizers == before.optimizers
    assert (study.training.max_epochs, study.training.patience) == (12, before.training.patience)
    assert study.protocol.repetitions == 2
    assert (
        "--dataset synthetic --backbone hslt --epochs 12 --set protocol.repetitions=2"
        in study.description
    )
    assert changed("ablation", epochs=3).name == "ablation-changed"


def test_an_entry_the_study_has_stays_as_it_is_and_a_new_one_takes_a_presets_settings():
    paper = {entry.name: entry for entry in parse_study(preset_text("paper")).datasets}
    study = changed("ablation", dataset=["isruc", "bci2a"])
    assert study.datasets[0] == paper["isruc"]
    assert study.datasets[1] == parse_study(preset_text("ablation")).datasets[1]
    demo = parse_study(preset_text("demo-synthetic")).datasets[0]
    assert changed("ablation", dataset=["synthetic"]).datasets[0] == demo


def test_one_data_set_under_two_names_with_options_of_its_own():
    study = changed(
        "sensitivity",
        dataset=["imagery=synthetic", "sleep=synthetic"],
        setting=[
            "datasets.sleep.options.kind=sleep",
            "datasets.sleep.options.n_subjects=8",
            "datasets.imagery.options.shift=0.5",
        ],
    )
    imagery, sleep = study.datasets
    assert (imagery.name, imagery.use, sleep.use) == ("imagery", "synthetic", "synthetic")
    assert (imagery.options["kind"], imagery.options["shift"]) == ("imagery", 0.5)
    assert (sleep.options["kind"], sleep.options["n_subjects"]) == ("sleep", 8)
    assert study.name == "sensitivity-imagery-sleep"


def test_a_backbone_under_another_name_keeps_the_rate_of_what_it_is():
    study = changed(
        "paper",
        dataset=["bci2a"],
        backbone=["wide=eegnet"],
        setting=["backbones.wide.settings.temporal_filters=16"],
    )
    assert study.datasets[0].lr["wide"] == 3e-3
    assert study.backbones[0].settings == {"temporal_filters": 16}


def test_optimizers_may_be_the_studys_own_the_packages_or_copies_under_another_seed():
    study = changed("convergence", optimizer=["adamw", "afor", "afor_seed_2", "torch.optim:SGD"])
    assert [o.use for o in study.optimizers] == ["adamw", "afor", "afor", "torch.optim:SGD"]
    assert [o.seed for o in study.optimizers] == [None, None, 2, None]
    varied = changed("sensitivity", optimizer=["afor", "afor_w_0.5", "afor_w_0.5_seed_1"])
    assert varied.optimizers[1].settings == {"direction_weight": 0.5}
    assert varied.optimizers[2].settings == {"direction_weight": 0.5}
    assert (varied.optimizers[2].use, varied.optimizers[2].seed) == ("afor", 1)


def test_without_early_stopping_more_epochs_bring_none_back():
    assert changed("convergence", epochs=500).training.patience == 500
    assert changed("convergence", epochs=20).training.patience == 200
    assert changed("paper", epochs=500).training.patience == 30


def test_draws_that_are_asked_for_are_all_run():
    assert (
        changed("convergence", setting=["protocol.repetitions=3"]).protocol.only_repetitions is None
    )
    assert changed("convergence", epochs=3).protocol.only_repetitions == [0]


def test_anything_a_study_may_say_can_be_set():
    study = changed(
        "paper",
        setting=[
            "seed=3",
            "name=mine",
            "protocol.only_folds=[0, 2]",
            "training.normalization=window",
            "datasets.isruc.folds=4",
            "datasets.deap.complete=false",
            "datasets.deap.options.threshold=4.5",
        ],
    )
    assert (study.seed, study.name) == (3, "mine")
    assert study.protocol.only_folds == [0, 2]
    assert study.training.normalization == "window"
    deap, _, isruc = study.datasets
    assert (deap.complete, deap.options["threshold"], isruc.folds) == (False, 4.5, 4)
    by_name = changed("sensitivity", setting=["optimizers.afor_beta2_min_0.9.lr=0.01"])
    assert [o.lr for o in by_name.optimizers if o.name == "afor_beta2_min_0.9"] == [0.01]


def test_what_is_said_of_the_training_holds_for_every_data_set():
    study = changed("paper", setting=["training.lr=0.02", "training.batch_size=16"])
    assert (study.training.lr, study.training.batch_size) == (0.02, 16)
    assert all(not d.lr and d.batch_size is None for d in study.datasets)


def test_the_changed_study_describes_itself():
    text = overridden(
        *study_text("demo-synthetic"),
        Overrides(epochs=2, setting=["datasets.synthetic.options.shift=0.25"]),
    )
    assert tomllib.loads(text)["datasets"][0]["options"]["shift"] == 0.25
    assert overridden(text, "again", Overrides()) == text
    assert parse_study(text).description.startswith("The study demo-synthetic with ")


def test_a_name_stays_within_its_length_and_its_letters():
    study = changed("controls", dataset=["moabb:BNCI2014_001"], backbone=["my.module:Net" * 6])
    assert study.name.startswith("controls-moabb-BNCI2014_001-my.module-Net")
    assert len(study.name) == 80


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": ["syntetic"]}, "Did you mean 'synthetic'?"),
        ({"dataset": ["mine=syntetic"]}, "Did you mean 'synthetic'?"),
        ({"backbone": ["eegnt"]}, "no backbone 'eegnt'. Did you mean 'eegnet'?"),
        ({"optimizer": ["afr"]}, "Did you mean 'afor'?"),
        ({"optimizer": ["adamm_seed_1"]}, "no optimizer 'adamm'"),
        ({"dataset": ["deap", "deap"]}, 'datasets has "deap" twice'),
        ({"setting": ["datasets.deap.options.ratng=arousal"]}, "Did you mean 'rating'"),
        ({"setting": ["datasets.deap.options.rating=joy"]}, "deap: option rating = 'joy'"),
        ({"setting": ["shift"]}, "expected KEY=VALUE"),
        ({"setting": ["training.max_epoch=3"]}, 'Did you mean "max_epochs"?'),
        ({"setting": ["datasets.dep.folds=3"]}, "datasets has no 'dep'. Did you mean 'deap'?"),
        ({"setting": ["protocol.only_folds=[0"]}, "protocol.only_folds = '[0' is not valid"),
        ({"setting": ["name.first=x"]}, "'name' is no table"),
        ({"epochs": 0}, "training.max_epochs = 0 is not valid"),
        ({"setting": ["protocol.repetitions=-1"]}, "protocol.repetitions = -1 is not valid"),
    ],
)
def test_what_cannot_be_is_told_with_the_nearest_that_can(changes, message):
    with pytest.raises(ConfigError) as caught:
        changed("ablation", **changes)
    assert message in str(caught.value)
    assert "line None" not in str(caught.value)


def test_a_mistake_in_the_file_itself_is_told_with_its_line():
    text = preset_text("demo").replace("max_epochs", "max_epoch")
    with pytest.raises(ConfigError, match=r"line \d+: unknown key"):
        overridden(text, "my.toml", Overrides(epochs=3))


@pytest.mark.parametrize("preset", preset_names())
def test_the_comments_of_a_study_survive_its_overrides(preset):
    text = preset_text(preset)
    made = overridden(text, preset, Overrides(epochs=3, setting=["seed=5"]))
    comments = re.findall(r"#.*", text)
    assert comments
    assert [comment for comment in re.findall(r"#.*", made)[1:] if comment in comments] == comments
    assert parse_study(made).seed == 5


def test_an_entry_keeps_its_comments_and_one_that_is_dropped_takes_them_along():
    text = """\
# About all of it.
name = "x"
backbones = ["eegnet", "acrnn"]  # two
optimizers = ["adam"]

[training]
lr = 1e-3  # Table II

[[datasets]]
name = "synthetic"  # no files needed

[[datasets]]
name = "deap"  # to be requested
"""
    changes = Overrides(
        dataset=["synthetic"],
        backbone=["acrnn"],
        setting=["training.lr=0.02", "protocol.repetitions=2"],
    )
    made = overridden(text, "x", changes)
    for comment in ("# About all of it.", "# two", "# Table II", "# no files needed"):
        assert comment in made
    assert "requested" not in made
    assert 'backbones = ["acrnn"]  # two' in made
    assert parse_study(made).training.lr == 0.02
