import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import load_study, parse_study, preset_names, preset_text
from afor.bench.study.toml_io import study_toml, toml_text

# What TOML can hold: no lone surrogates, integers of 64 bits, and a NaN that equals nothing.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
scalars = words | numbers | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)


# A busy machine is slow to draw values; that says nothing of what is written.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(words, values, max_size=5))
def test_what_is_written_reads_back_as_it_was(content):
    assert tomllib.loads(toml_text(content)) == content


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_survives(name):
    content = tomllib.loads(preset_text(name))
    assert tomllib.loads(toml_text(content)) == content


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
    with pytest.raises(ConfigError, match="cannot be written into a study"):
        study_toml(study.model_copy(update={"optimizers": [entry]}))
