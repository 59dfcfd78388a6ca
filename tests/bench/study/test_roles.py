from dataclasses import replace

import pytest

from afor.bench.study.roles import Role, role_from_name, roles_of
from afor.bench.study.schema import load_study, parse_study, preset_names

STUDY = """
name = "x"
datasets = ["synthetic"]
backbones = ["eegnet"]
"""


def roles(*entries):
    tables = "".join(f"[[optimizers]]\n{entry}\n" for entry in entries)
    return roles_of(parse_study(STUDY + tables))


ADAM = 'name = "adam"'


def test_a_control_is_found_whatever_its_name():
    given = roles(ADAM, 'name = "adam_b"\nuse = "adam"\nseed = 1')
    assert given == {"adam": Role(), "adam_b": Role(replicate_of="adam", seed=1)}


def test_a_name_that_looks_like_a_control_makes_none():
    given = roles(ADAM, 'name = "adam_seed_1"\nuse = "adamw"')
    assert given["adam_seed_1"] == Role()


@pytest.mark.parametrize(
    "change", ["lr = 0.5", "weight_decay = 0.5", "settings = { betas = [0.8, 0.999] }"]
)
def test_a_copy_differs_in_the_seed_alone(change):
    other = f'name = "other"\nuse = "adam"\nseed = 1\n{change}'
    assert roles(ADAM, other)["other"].replicate_of == ""
    twice = roles(ADAM, other, other.replace('"other"', '"again"').replace("seed = 1", ""))
    assert twice["other"] == Role(replicate_of="again", seed=1)


def test_a_control_alone_is_a_replicate_of_the_optimizer_it_uses():
    assert roles('name = "b"\nuse = "adam"\nseed = 2') == {"b": Role(replicate_of="adam", seed=2)}
    assert roles('name = "adam"\nseed = 2') == {"adam": Role(seed=2)}


def test_an_entry_that_changes_one_setting_of_afor_is_varied():
    slow = 'name = "slow"\nuse = "afor"\nsettings = { warmup_steps = 500 }'
    assert roles('name = "afor"', slow)["slow"] == Role(varied=("warmup", 500.0))
    assert roles(ADAM, slow)["slow"] == Role()  # no AFOR to compare it with
    assert roles('name = "afor"', f"{slow}\nlr = 0.5")["slow"] == Role()
    both = slow.replace("500", "500, beta2_min = 0.9")
    assert roles('name = "afor"', both)["slow"] == Role()


def test_the_afor_of_a_study_may_have_settings_of_its_own():
    calibrated = 'settings = { statistics = "calibrated" }'
    slow = 'name = "slow"\nuse = "afor"\nsettings = { statistics = "calibrated", warmup_steps = 5 }'
    assert roles(f'name = "afor"\n{calibrated}', slow)["slow"].varied == ("warmup", 5.0)
    assert roles(f'name = "other"\nuse = "afor"\n{calibrated}', slow)["slow"].varied is None


@pytest.mark.parametrize("preset", preset_names())
def test_the_names_in_the_presets_say_what_the_entries_are(preset):
    for name, role in roles_of(load_study(preset)).items():
        assert role_from_name(name) == replace(role, control=False)  # a mark of the study


def test_a_name_with_an_endless_number_is_only_a_name():
    assert role_from_name("adam_seed_" + "9" * 5000) == Role()
