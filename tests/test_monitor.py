"""Looking inside: names, values, table, figure, trackers, no host sync while recording."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from afor import AFOR
from afor.control import FIELDS
from afor.monitor import Monitor, Reading, read
from afor.reference import ReferenceState, reference_step


def trained(steps: int, **options: object) -> tuple[torch.nn.Module, AFOR, Monitor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    optimizer = AFOR(model.named_parameters(), lr=1e-2, **options)  # type: ignore[arg-type]
    monitor = Monitor(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        optimizer.step()
        monitor.record()
    return model, optimizer, monitor


def test_a_reading_is_what_the_reference_computes() -> None:
    theta = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    param = torch.nn.Parameter(theta.clone())
    optimizer = AFOR([("theta", param)], lr=1e-2, weight_decay=0.0)
    state = ReferenceState.start(theta)
    torch.manual_seed(1)
    for _ in range(120):
        grad = torch.randn(3, dtype=torch.float64) + 1
        param.grad = grad.clone()
        optimizer.step()
        theta, seen = reference_step(theta, grad, state, lr=1e-2)
    reading = read(optimizer)["theta"]
    assert reading.step == 120
    assert reading.beta2 == pytest.approx(seen.beta2, abs=1e-12)
    assert reading.score == pytest.approx(seen.score)
    assert reading.zscore == pytest.approx(seen.zscore)
    assert reading.agreement == pytest.approx(state.agreement)
    assert reading.noise == pytest.approx(max(state.noise_fast, state.noise_slow))
    assert reading.score_std == pytest.approx(state.score_var**0.5)


def test_names_come_from_the_model_the_parameters_or_their_place() -> None:
    model, optimizer, _ = trained(1)
    assert list(read(optimizer)) == [name for name, _ in model.named_parameters()]
    plain = AFOR(model.parameters())
    plain.step()
    assert list(read(plain)) == ["0.0", "0.1", "0.2", "0.3"]
    assert list(read(plain, model)) == [name for name, _ in model.named_parameters()]


def test_every_step_is_recorded_for_every_tensor() -> None:
    _, _, monitor = trained(7)
    readings = monitor.readings()
    assert [r.step for r in readings] == [step for step in range(1, 8) for _ in range(4)]
    assert all(0.99 <= r.beta2 <= 0.999 for r in readings)
    monitor.clear()
    assert monitor.readings() == []


def test_recording_can_skip_steps() -> None:
    _, optimizer, _ = trained(1)
    monitor = Monitor(optimizer, every=3)
    for _ in range(7):
        optimizer.step()
        monitor.record()
    assert sorted({r.step for r in monitor.readings()}) == [3, 6]
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        Monitor(optimizer, every=0)


def test_recording_reads_nothing_back_to_the_host() -> None:
    _, _, monitor = trained(2)

    class NoReads(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            assert func is not torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    with NoReads():
        monitor.record()


def test_a_record_does_not_change_with_later_steps() -> None:
    _, optimizer, monitor = trained(3)
    before = monitor.readings()
    optimizer.step()
    assert monitor.readings() == before


def test_the_table_has_one_line_per_tensor() -> None:
    model, _, monitor = trained(3)
    lines = monitor.table().splitlines()
    assert lines[0].split() == [
        "tensor",
        "beta2",
        "score",
        "noise",
        "agreement",
        "z-score",
        "sigma",
    ]
    assert [line.split()[0] for line in lines[1:]] == [n for n, _ in model.named_parameters()]


def test_the_share_of_active_tensors_counts_large_z_scores() -> None:
    _, optimizer, _ = trained(1)
    monitor = Monitor(optimizer)
    for p, zscore in zip(optimizer.param_groups[0]["params"], (0.0, 0.6, -0.7, 0.4), strict=True):
        optimizer.state[p]["control"][FIELDS.index("zscore")] = zscore
    monitor.record()
    assert monitor.active_share() == [(1, 0.5)]


def test_tensors_without_a_step_are_left_out() -> None:
    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = AFOR([("used", used), ("unused", unused)])
    monitor = Monitor(optimizer)
    monitor.record()
    assert monitor.readings() == []
    used.grad = torch.ones(2)
    optimizer.step()
    assert list(read(optimizer)) == ["used"]
    assert isinstance(read(optimizer)["used"], Reading)


def test_an_unknown_name_says_what_to_pass() -> None:
    model, optimizer, _ = trained(1)
    with pytest.raises(KeyError, match=r"no tensor 'weight' with a step; there are 0\.weight"):
        read(optimizer)["weight"]
    plain = AFOR(model.parameters())
    plain.step()
    with pytest.raises(KeyError, match=r"Pass the model, read\(optimizer, model\)"):
        read(plain)["0.weight"]


def test_a_notebook_shows_the_last_record_as_a_table() -> None:
    _, optimizer, monitor = trained(3)
    shown = monitor._repr_html_()
    assert "4 tensors at call 3" in shown
    assert shown.count("<tr>") == 5
    assert f"<td>{read(optimizer)['0.weight'].beta2:.5f}</td>" in shown
    assert "<script>" not in Monitor(AFOR([("<script>", torch.zeros(1))]))._repr_html_()


def test_records_become_a_frame() -> None:
    pytest.importorskip("pandas")
    _, _, monitor = trained(4)
    frame = monitor.to_frame()
    assert frame.shape == (16, 8)
    assert frame["beta2"].tolist() == [r.beta2 for r in monitor.readings()]


def test_a_quantity_is_drawn_over_the_steps() -> None:
    pytest.importorskip("matplotlib")
    _, _, monitor = trained(4)
    (axis,) = monitor.plot().axes
    assert [line.get_label() for line in axis.lines] == [
        "0.weight", "0.bias", "2.weight", "2.bias", "AdamW",
    ]  # fmt: skip
    assert list(axis.lines[0].get_xdata()) == [1, 2, 3, 4]
    (axis,) = monitor.plot("zscore", ["0.bias"]).axes
    assert len(axis.lines) == 1
    with pytest.raises(ValueError, match="no tensor 'x'"):
        monitor.plot(names=["x"])
    with pytest.raises(ValueError, match="no quantity 'beta'"):
        monitor.plot("beta")


def test_a_notebook_shows_the_figure_as_a_picture() -> None:
    pytest.importorskip("matplotlib")
    _, _, monitor = trained(2)
    figure = monitor.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(figure)
    assert shown["image/png"] == figure._repr_png_()


def test_print_shows_the_last_record() -> None:
    _, optimizer, monitor = trained(3)
    assert repr(monitor) == "Monitor: AFOR's controllers of 4 tensors at call 3 of record()"
    assert (
        str(monitor) == f"AFOR's controllers of 4 tensors at call 3 of record()\n{monitor.table()}"
    )
    assert "nothing recorded yet" in repr(Monitor(optimizer))


def expected_scalars(monitor: Monitor, *quantities: str) -> dict[str, list[tuple[int, float]]]:
    """Return what a tracker must hold: pairs of step and value by name."""
    scalars: dict[str, list[tuple[int, float]]] = {}
    for r in monitor.readings():
        for quantity in quantities:
            pairs = scalars.setdefault(f"afor/{quantity}/{r.name}", [])
            pairs.append((r.step, getattr(r, quantity)))
    return scalars


def test_any_function_takes_one_call_per_step() -> None:
    _, _, monitor = trained(3)
    calls: list[tuple[int, dict[str, float]]] = []
    monitor.write(lambda values, step: calls.append((step, values)), quantities=["beta2"])
    assert [step for step, _ in calls] == [1, 2, 3]
    expected = expected_scalars(monitor, "beta2")
    assert {name: [(s, v[name]) for s, v in calls] for name in expected} == expected
    with pytest.raises(TypeError, match=r"write\(\) takes a SummaryWriter, .* got str"):
        monitor.write("tensorboard")


def test_scalars_reach_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    _, _, monitor = trained(4)
    with SummaryWriter(str(tmp_path)) as writer:
        monitor.write(writer, quantities=["beta2", "zscore"])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    expected = expected_scalars(monitor, "beta2", "zscore")
    assert set(events.Tags()["scalars"]) == set(expected)
    for tag, pairs in expected.items():
        scalars = events.Scalars(tag)
        assert [s.step for s in scalars] == [step for step, _ in pairs]
        assert [s.value for s in scalars] == pytest.approx([value for _, value in pairs])
    with pytest.raises(ValueError, match="no quantity 'beta3'; there are beta2, score"):
        monitor.write(writer, quantities=["beta3"])


def test_all_steps_reach_wandb_beside_what_the_user_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    wandb = pytest.importorskip("wandb")
    with wandb.init(
        dir=tmp_path, mode="offline", settings=wandb.Settings(silent=True, console="off")
    ) as run:
        _, _, monitor = trained(50)
        for step in range(50):
            run.log({"loss": 1.0 / (step + 1)})
        monitor.write(run, quantities=["beta2", "zscore"])
        file = Path(run.settings.sync_file)
    deadline = time.monotonic() + 60  # a process of wandb writes the file, also after the end
    while len(history := wandb_history(file)) < 100 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len([row for row in history if "loss" in row]) == 50
    for name, pairs in expected_scalars(monitor, "beta2", "zscore").items():
        assert [(row["afor/step"], row[name]) for row in history if name in row] == pairs


def wandb_history(file: Path) -> list[dict[str, Any]]:
    """Read the rows of an offline run: LevelDB's log format after a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = file.read_bytes()
    place, content, history = 7, b"", []
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:  # the rest of a block is padding
            place += 32768 - place % 32768
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if place + 7 + size > len(data):  # still being written
            break
        content += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = Record.FromString(content)
            content = b""
            if record.HasField("history"):
                items = record.history.item
                history.append(
                    {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
                )
    return history


def test_all_steps_reach_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # of MLflow 3
    # Not among the extras: mlflow-skinny 3 takes importlib_metadata below 10 alone. To run this:
    # pip install --target FOLDER mlflow-skinny, then PYTHONPATH=FOLDER pytest tests/test_monitor.py
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    _, _, monitor = trained(5)
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 1.0, step=9)
        monitor.write(mlflow.log_metrics, quantities=["beta2", "zscore"])
    client = mlflow.MlflowClient()
    for name, pairs in expected_scalars(monitor, "beta2", "zscore").items():
        metrics = client.get_metric_history(run.info.run_id, name)
        assert [(m.step, m.value) for m in metrics] == pairs
