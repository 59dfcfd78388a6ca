from afor.bench.execution.timing.pace import Pace


def test_nothing_is_guessed_without_a_measured_run():
    assert Pace().total([("deap", "eegnet", "adam")]) is None


def test_the_nearest_measured_runs_decide():
    pace = Pace()
    pace.add("deap", "eegnet", "adam", 10.0)
    pace.add("deap", "hslt", "adam", 100.0)
    assert pace.total([("deap", "eegnet", "adam")]) == 10.0
    assert pace.total([("deap", "hslt", "mars")]) == 100.0
    assert pace.total([("deap", "acrnn", "mars")]) == 55.0
    assert pace.total([("isruc", "acrnn", "mars")]) == 55.0
    assert pace.total([]) == 0.0
