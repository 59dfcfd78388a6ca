from afor.bench.execution.run_times import RunTimes


def test_nothing_is_guessed_without_a_measured_run():
    assert RunTimes().total([("deap", "eegnet", "adam")]) is None


def test_the_nearest_measured_runs_decide():
    times = RunTimes()
    times.add(("deap", "eegnet", "adam"), 10.0)
    times.add(("deap", "hslt", "adam"), 100.0)
    assert times.total([("deap", "eegnet", "adam")]) == 10.0
    assert times.total([("deap", "hslt", "mars")]) == 100.0
    assert times.total([("deap", "acrnn", "mars")]) == 55.0
    assert times.total([("isruc", "acrnn", "mars")] * 2) == 110.0
    assert times.total([]) == 0.0


def test_one_run_that_hung_does_not_change_the_usual_time():
    times = RunTimes()
    for seconds in (10.0, 11.0, 9.0, 86_400.0, 10.0):
        times.add(("deap", "eegnet", "adam"), seconds)
    assert times.usual_s(("deap", "eegnet", "adam")) == 10.0
    assert times.total([("deap", "eegnet", "adam")] * 3) == 30.0
