import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.models.settings import Form, check_choice


def test_a_wrong_choice_is_refused_with_the_accepted_ones():
    with pytest.raises(ConfigError, match="HSLT: form must be one of fast, plain, found 'slow'"):
        check_choice("HSLT", "form", "slow", Form)
