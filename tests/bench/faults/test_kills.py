import random
import signal
import time

import psutil
import pytest


def kill_drivers(tiny, kills, seed, workers_of, assert_gone, kill):
    """Run a study whose driver is killed at random moments; nothing may be lost or repeated."""
    rng = random.Random(seed)
    finished, seen = tiny.finished(), len(tiny.trainings())
    killed = 0
    for number in range(kills):
        driver = tiny.start("-j", "2")
        wait_s = rng.uniform(0.0, 0.4)
        workers = workers_of(driver, at_least=1) if number % 4 else []
        time.sleep(wait_s if workers else wait_s * 3)
        if driver.poll() is not None:  # it has completed the study before its end came
            driver.communicate()
            break
        if workers:
            workers = psutil.Process(driver.pid).children(recursive=True)
        kill(driver)
        killed += 1
        assert_gone(workers)
        begun = tiny.trainings()[seen:]
        assert not finished.intersection(begun), "a finished run was trained again"
        now = tiny.finished()
        assert finished <= now, "a finished run was lost"
        finished, seen = now, len(tiny.trainings())
    assert killed == kills, f"the study was complete after {killed} kills"
    return finished


def complete(tiny, finished):
    seen = len(tiny.trainings())
    tiny.call("-j", "2")
    begun = tiny.trainings()[seen:]
    assert not finished.intersection(begun)
    assert len(begun) == len(set(begun)), "a run was trained twice"


def test_a_driver_killed_at_random_moments_loses_and_repeats_no_finished_run(
    tiny, workers_of, assert_gone, kill
):
    tiny.write(optimizers=("a", "b", "c"), repetitions=4, delay_s=0.03)  # 60 runs
    finished = kill_drivers(tiny, 5, 1, workers_of, assert_gone, kill)
    complete(tiny, finished)
    assert len(tiny.finished()) == 60
    assert not list(tiny.store.with_name("tiny.db.spool").glob("*.run"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_of_a_driver_lose_and_repeat_no_finished_run(
    tiny, workers_of, assert_gone, kill
):
    tiny.write(
        optimizers=tuple("abcdefghijkl"), subjects=10, repetitions=5, delay_s=0.15
    )  # 600 runs
    finished = kill_drivers(tiny, 200, 2, workers_of, assert_gone, kill)
    complete(tiny, finished)
    assert len(tiny.finished()) == 600


def kill_workers(tiny, kills, seed, workers_of):
    rng = random.Random(seed)
    driver = tiny.start("-j", "2")
    killed = 0
    while killed < kills and driver.poll() is None:
        found = workers_of(driver)
        time.sleep(rng.uniform(0.0, 0.6))
        alive = [worker for worker in found if worker.is_running()]
        if alive:
            rng.choice(alive).kill()
            killed += 1
    out, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, out + err
    return killed


def test_killed_workers_are_replaced_and_the_numbers_stay_the_same(tiny, workers_of):
    tiny.write(optimizers=("a", "b", "c"), repetitions=4, delay_s=0.1)  # 60 runs
    assert kill_workers(tiny, 4, 3, workers_of) == 4
    calm = tiny.folder / "results" / "calm.db"
    tiny.call("--store", calm)
    assert tiny.numbers() == tiny.numbers(calm)
    assert len(tiny.numbers()) == 60


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_workers_change_nothing(tiny, workers_of):
    tiny.write(
        optimizers=tuple("abcdefghijkl"), subjects=10, repetitions=5, delay_s=0.15
    )  # 600 runs
    assert kill_workers(tiny, 100, 4, workers_of) == 100
    calm = tiny.folder / "results" / "calm.db"
    tiny.call("--store", calm)
    assert tiny.numbers() == tiny.numbers(calm)


def test_a_run_that_kills_its_worker_three_times_fails_and_the_rest_goes_on(tiny):
    tiny.write(optimizers=("a", "killer", "raiser", "diverger"), subjects=3, repetitions=1)
    text = tiny.call("-j", "1", code=1)
    assert "its worker died 3 times" in text
    assert "killed by SIGKILL" in text
    assert "RuntimeError: this optimizer never works" in text
    assert "3 done, 3 diverged, 6 failed" in text
    assert len(tiny.trainings()) == 3 + 3 * 3 + 3 + 3
    listing = tiny.call(command="store failures")
    assert listing.count("failed  ") == 6
    assert listing.count("diverged") == 3
    assert "(0 trained now)" in tiny.call(code=1)  # what failed is not tried again by itself
    assert "6 failed runs" in tiny.call("--retry", command="store failures")
    tiny.call(code=1)
    assert len(tiny.trainings()) == 2 * (3 * 3 + 3) + 6


def stop(driver, sign) -> str:
    """Send a signal to a driver; return what it says when it has ended in good order."""
    driver.send_signal(sign)
    out, err = driver.communicate(timeout=5)
    assert driver.returncode == 130, out + err
    assert "Next:" in err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_in_seconds_say_how_to_go_on_and_lose_nothing(
    tiny, workers_of, assert_gone, sign
):
    tiny.write(repetitions=4, delay_s=30.0)
    driver = tiny.start("-j", "2")
    workers = workers_of(driver, at_least=2)
    while not tiny.trainings():
        time.sleep(0.02)
    assert "Stopped." in stop(driver, sign)
    assert_gone(workers)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_verify_stopped_in_its_trainings_exits_in_seconds_and_leaves_the_store_as_it_was(
    tiny, workers_of, assert_gone, sign
):
    tiny.write(subjects=3, repetitions=1, delay_if_told_s=30.0)
    tiny.run_inline()
    store = tiny.store.read_bytes()
    seen = len(tiny.trainings())
    temporary = tiny.folder / "temporary"
    temporary.mkdir()
    environment = {"TINY_DELAY": "1", "TMPDIR": str(temporary)}
    driver = tiny.start("-j", "2", "--trust", command="store verify", env=environment)
    workers = workers_of(driver, at_least=2)
    while len(tiny.trainings()) == seen:
        time.sleep(0.02)
    told = stop(driver, sign)
    assert "was only read" in told
    assert "Next: afor store verify" in told
    assert_gone(workers)
    assert tiny.store.read_bytes() == store
    log = tiny.store.with_name("tiny.db-wal")  # every reader of SQLite makes one
    assert not log.exists() or log.stat().st_size == 0
    assert not list(temporary.iterdir())


def test_two_drivers_on_one_store_train_nothing_twice(tiny, workers_of):
    tiny.write(repetitions=4, delay_s=0.05)
    first = tiny.start("-j", "2")
    workers_of(first)
    refused = tiny.call("-j", "2", code=4)
    assert "another afor" in refused
    out, err = first.communicate(timeout=60)
    assert first.returncode == 0, out + err
    assert len(tiny.trainings()) == len(set(tiny.trainings())) == 40


def test_status_answers_while_a_driver_writes(tiny, workers_of):
    tiny.write(repetitions=4, delay_s=0.05)
    driver = tiny.start("-j", "1")
    workers_of(driver)
    while len(tiny.trainings()) < 5:
        time.sleep(0.02)
    assert "of training left" in tiny.call(command="status")
    driver.communicate(timeout=60)
    assert driver.returncode == 0
