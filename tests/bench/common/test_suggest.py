"""The suggestion for a misspelled name."""

import doctest

from afor.bench.common import suggest


def test_the_examples_give_what_they_say():
    result = doctest.testmod(suggest)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_suggestion_has_the_spelling_of_the_accepted_name():
    assert suggest.nearest("linear", ["Linear", "lstm"]) == "Linear"
    assert suggest.did_you_mean("zzz", ["Linear"]) == ""
