import json
import math

import numpy as np
import pytest

from afor.bench.analyses.theory.summary import TOY_SOURCES, report
from afor.bench.analyses.theory.theorem import Assumptions


def values(**changes):
    settings = {
        "smoothness": 0.1, "gradient_bound": 1.0, "noise_sq": 0.0, "drift_sq": np.zeros(10),
        "gap": 0.5, "parameters": 10, "start_norm": 0.0, "eps": 1e-8, "weight_decay": 0.0,
        **changes,
    }  # fmt: skip
    given = Assumptions(**settings)
    trace = {"head.weight": np.full(10, 0.99)}
    return report(given, 1e-3, trace, 0.2, title="a test", sources=TOY_SOURCES)


def test_a_learning_rate_that_is_too_large_is_said_with_its_factor():
    found = values()
    largest = 0.25 / (0.1 * 4e16)  # a_λ = 1/4(G+ε), b_λ = 4/ε²
    assert found["largest_lr"] == pytest.approx(largest, rel=1e-6)
    assert found["lr_factor"] == pytest.approx(1e-3 / largest, rel=1e-6)
    assert not found["condition_holds"]
    assert "is 1.6e+13 times the largest" in found["verdict"][0]


def test_a_vacuous_bound_is_said_with_its_orders_of_magnitude():
    found = values()
    assert found["orders"] == pytest.approx(
        math.log10(found["bound_at_largest_lr"]["total"] / 10.0)
    )
    assert f"vacuous by {found['orders']:.1f} orders" in found["verdict"][1]
    assert "It would say something after" in found["verdict"][2]


def test_weight_decay_rules_out_any_bound():
    found = values(weight_decay=1e-4)
    assert found["steps_to_inform"] is None
    assert "No number of steps" in found["verdict"][2]
    assert "on any problem" in found["verdict"][3]


def test_a_bound_that_says_something_is_said_too():
    found = values(eps=1.0, drift_sq=np.zeros(1000))
    assert found["condition_holds"]
    assert "satisfies" in found["verdict"][0]
    assert "it says something" in found["verdict"][1]


def test_it_is_plain_values():
    assert json.loads(json.dumps(values()))["memory_length"] == pytest.approx(
        {"head.weight": 5.42}, abs=0.01
    )
