import pytest

from afor.bench.optimizers.stepwise import require_at_least, require_betas


@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_a_number_below_the_limit_or_nan_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="eps must be at least 0, found"):
        require_at_least("eps", value, 0.0)


@pytest.mark.parametrize("betas", [(0.9,), (0.9, 1.0), (-0.1, 0.9), (0.9, float("nan"))])
def test_decay_rates_must_be_two_below_one(betas: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"betas must be two numbers in \[0, 1\)"):
        require_betas("betas", betas)
