import tomllib

import pytest

from afor.bench.config import load_study, parse_study, preset_names
from afor.bench.toml_text import study_toml


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_written_and_read_back_as_the_same_study(name) -> None:
    study = load_study(name)
    assert parse_study(study_toml(study)) == study


def test_keys_with_dots_strings_with_quotes_and_every_digit_survive() -> None:
    settings = {
        "beta2_by_tensor": {"a.weight": 0.1 + 0.2, 'odd "key"\x7f': 1e-300, "n": 1.0},
        "betas": [0.9, 0.999],
        "flag": True,
        "count": 3,
        "nested": {},
    }
    study = load_study("demo")
    entry = study.optimizers[0].model_copy(update={"settings": settings})
    text = study_toml(study.model_copy(update={"optimizers": [entry]}), "first\n\nlast")
    assert text.startswith("# first\n#\n# last\nname = ")
    read = tomllib.loads(text)["optimizers"][0]["settings"]
    assert read == settings
    assert isinstance(read["beta2_by_tensor"]["n"], float)
    assert isinstance(read["count"], int)


def test_a_value_toml_cannot_hold_is_refused() -> None:
    study = load_study("demo")
    entry = study.optimizers[0].model_copy(update={"settings": {"x": None}})
    with pytest.raises(TypeError, match="no way to write None"):
        study_toml(study.model_copy(update={"optimizers": [entry]}))
