"""A trainer that takes milliseconds: the same spec always gives the same record.

It writes a line per run it begins to $TINY_LOG, so that tests can tell what was trained twice.
"""

import hashlib
import json
import os
import signal
import time

from afor.bench.training.metrics import measure
from afor.bench.training.record import Epoch, RunRecord


def train(spec, source):
    import numpy as np

    settings = spec["backbone"]["settings"]
    text = json.dumps(spec, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    if log := os.environ.get("TINY_LOG"):
        place = [spec["optimizer"]["name"], spec["split"]["fold"], spec["split"]["repetition"]]
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, (json.dumps(place) + "\n").encode())
        os.close(descriptor)
    time.sleep(settings.get("delay_s", 0.0))
    if os.environ.get("TINY_DELAY"):  # a run that is slow only when it is repeated
        time.sleep(settings.get("delay_if_told_s", 0.0))
    if spec["optimizer"]["name"] == "killer":
        os.kill(os.getpid(), signal.SIGKILL)
    if spec["optimizer"]["name"] == "raiser":
        raise RuntimeError("this optimizer never works")
    if spec["optimizer"]["name"] == "diverger":
        return _record("diverged", "the training loss became nan in epoch 1", (), None)
    rng = np.random.default_rng(int(key[:15], 16))
    labels = source.labels[source.indices_of(spec["split"]["test"])]
    test = measure(labels, rng.integers(0, source.n_classes, len(labels)), source.n_classes)
    loss, accuracy = rng.random(2)
    # The search for the learning rate looks for this.
    accuracy = 1.0 - abs(spec["optimizer"]["lr"] - settings.get("best_lr", 1e-3))
    size = settings.get("padding", 0)  # a record as large as a test wants it
    zeros = [0.0] * size
    trace = {"beta2": rng.random(size).tolist(), "beta2_sd": zeros, "score": zeros, "awake": zeros}
    padding = {"padding": trace} if size else {}
    epoch = Epoch(float(loss), float(loss), float(accuracy), 0.0, 0.0)
    return _record("done", "", (epoch,), test, padding)


def _record(status, reason, history, test, traces=None):
    return RunRecord(
        status=status,
        reason=reason,
        history=history,
        best_epoch=0 if history else None,
        test=test,
        test_trials=test,
        train_class_counts=(1, 2, 0, 0),
        parameters=1,
        steps=1,
        traces=traces or {},
        device="cpu",
        elapsed_s=0.001,
    )
