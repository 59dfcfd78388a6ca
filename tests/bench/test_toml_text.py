import tomllib
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afor.bench.config import preset_names, preset_text
from afor.bench.errors import ConfigError
from afor.bench.toml_text import toml_text

# What TOML can hold: no lone surrogates, integers of 64 bits, and a NaN that equals nothing.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
scalars = words | numbers | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(words, values, max_size=5))
def test_what_is_written_reads_back_as_it_was(content):
    assert tomllib.loads(toml_text(content)) == content


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_survives(name):
    content = tomllib.loads(preset_text(name))
    assert tomllib.loads(toml_text(content)) == content


def test_what_no_study_holds_is_refused():
    with pytest.raises(ConfigError, match="cannot be written into a study"):
        toml_text({"day": date(2026, 1, 1)})
