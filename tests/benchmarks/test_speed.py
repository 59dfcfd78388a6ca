"""The speed benchmark runs, and measures what it says."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from afor.native.binding import instruction_set

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
CONTENDERS = ("adam", "released", "afor-loop", "afor-foreach")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    """Run the command once; return its JSON, what it printed and the folder it wrote to."""
    folder = tmp_path_factory.mktemp("speed")
    names = [word for name in CONTENDERS for word in ("--contender", name)]
    workloads = ["--workload", "eegnet", "--workload", "scaling", "--workload", "copy"]
    done = _speed(
        *("--quick", "--threads", "1", *workloads, *names, "--contender", "afor-fused"),
        *("--json", folder / "out.json", "--markdown", folder / "table.md", "--plots", folder),
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out.json").read_text()), done.stdout, folder


def _speed(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "speed.py"), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a file of the benchmark, which is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize(
    ("name", "parameters", "tensors"),
    [
        ("eegnet", 1_746, 12),
        ("hslt", 373_330, 368),
        ("resnet50", 25_557_032, 161),
        ("gpt2", 124_439_808, 148),
        ("single", 100_000_000, 1),
    ],
)
def test_the_workloads_have_the_shapes_of_the_networks_they_stand_for(
    name: str, parameters: int, tensors: int, part: Any
) -> None:
    workload = part("workloads").WORKLOADS[name]
    assert (workload.parameters, len(workload.shapes)) == (parameters, tensors)


def test_the_trained_network_has_the_tensors_of_its_workload(part: Any) -> None:
    workloads = part("workloads")
    for t in workloads.TRAININGS.values():
        geometry = (t.channels, t.samples, t.kernel, t.classes)
        model = workloads.EEGNet(*geometry)
        shapes = tuple(tuple(p.shape) for p in model.parameters())
        assert shapes == workloads.eegnet_shapes(*geometry)


def test_a_training_step_is_measured_with_the_optimizers_part_of_it(part: Any) -> None:
    workloads, measure = part("workloads"), part("measure")
    tiny = workloads.Training("tiny", "tiny", batch=2, channels=3, samples=64, kernel=8, classes=2)
    effort = measure.Effort(block_s=0.0, rounds=2, budget_s=0.0, max_rounds=2)
    records = list(measure.measure_training(tiny, 1, ["adamw-fused", "afor-loop"], effort))
    for record in records:
        assert len(record.samples_us) == len(record.yardstick_us) == 2
        assert all(a < b for a, b in zip(record.samples_us, record.whole_us, strict=True))


def test_large_sets_are_raced_in_pairs_against_the_yardstick(part: Any) -> None:
    workloads, measure = part("workloads"), part("measure")
    large = workloads.Workload("large", "large", ((1_000_001,),), {"radam": "left out here"})
    effort = measure.Effort(block_s=0.0, rounds=2, budget_s=0.0, max_rounds=2)
    names = ["adam", "adamw", "adamw-fused", "radam"]
    records = {r.contender: r for r in measure.measure_set(large, 1, "kept", names, effort)}
    assert records["adam"].session != records["adamw"].session
    assert len(records["adamw-fused"].samples_us) == 4  # two of each pair
    assert records["radam"].missing == "left out: left out here"


def test_every_contender_has_a_record_with_samples_or_a_reason(
    run: tuple[dict[str, Any], str, Path],
) -> None:
    content, _, _ = run
    records = [r for r in content["records"] if r["workload"] == "eegnet"]
    expected = {*CONTENDERS, "adamw-fused", "afor-fused"}
    for gradients in ("kept", "fresh"):
        at = {r["contender"]: r for r in records if r["gradients"] == gradients}
        assert set(at) == expected
        for record in at.values():
            assert bool(record["samples_us"]) != bool(record["missing"])
            if record["samples_us"]:
                assert record["median_us"] > 0
                assert len(record["samples_us"]) == len(record["yardstick_us"])
                assert record["state_bytes"] >= 2 * 4 * 1746


def test_the_scaling_curve_and_the_copy_are_measured(
    run: tuple[dict[str, Any], str, Path],
) -> None:
    content, _, _ = run
    sizes = {r["parameters"] for r in content["records"] if r["workload"].startswith("scaling-")}
    assert sizes == {1_000, 10_000, 100_000}
    assert all(rate > 0 for rate in content["copy_gb_s"]["1"])


def test_the_machine_and_its_bystanders_are_named(run: tuple[dict[str, Any], str, Path]) -> None:
    content, printed, _ = run
    machine = content["machine"]
    assert machine["cpu"] in printed
    assert machine["kernel_isa"] == instruction_set()
    if machine["kernel_isa"] is not None:
        assert f"Instruction set of AFOR's kernel: {machine['kernel_isa']}." in printed
    others = machine["cores_used_by_others"]
    assert others is None or 0 <= others <= machine["cores"] + 0.1


def test_tables_and_pictures_are_written(run: tuple[dict[str, Any], str, Path]) -> None:
    _, printed, folder = run
    isa = f", {instruction_set()}" if instruction_set() else ""
    assert f"### EEGNet, 12 tensors, 1 thread{isa} (gradients kept)" in printed
    page = (folder / "table.md").read_text()
    assert "### Targets" in page
    assert {p.name for p in folder.glob("*.png")} == {"speed-ratios.png", "speed-scaling.png"}


def test_an_earlier_run_can_be_shown_again_and_checked(
    run: tuple[dict[str, Any], str, Path], part: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    content, printed, folder = run
    for record in content["records"]:  # a kernel that takes as long as Adam misses its target
        if record["contender"] in ("adam", "afor-fused"):
            record.update(samples_us=[100.0] * 3, missing="", session="one")
            record["yardstick_us"] = [50.0] * 3
    (folder / "slow.json").write_text(json.dumps(content))
    main = part("speed").main
    assert main(["--from", str(folder / "slow.json"), "--check", "--plots", str(folder)]) == 1
    assert "NOT REACHED" in capsys.readouterr().out
    assert main(["--from", str(folder / "out.json"), "--plots", str(folder)]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("cpu", "isa", "at_most"),
    [
        ("Intel Xeon", "avx512", 1.2),
        ("AMD EPYC", "avx512", 1.45),
        ("AMD EPYC", "avx2", 1.5),
        ("AMD EPYC", "default", None),
    ],
)
def test_the_targets_of_large_tensors_are_those_of_the_processor(
    cpu: str, isa: str, at_most: float | None, part: Any
) -> None:
    results, targets = part("results"), part("targets")
    verdicts = targets.judge(results.Results({"cpu": cpu, "kernel_isa": isa}))
    of_afor = [v.target for v in verdicts if v.target.contender == "afor-fused"]
    large = [target.at_most for target in of_afor if target.workload == "resnet50"]
    assert large[:1] == ([] if at_most is None else [at_most])
    workloads = {v.target.workload for v in verdicts}
    assert {"eegnet", "train-deap", "train-bci2a"} <= workloads


def test_the_check_measures_what_its_targets_need_and_nothing_else(part: Any) -> None:
    speed, targets = part("speed"), part("targets")
    options = speed._parse(["--check"])
    measured = {name: speed._contenders(options, name) for name in speed.NAMES}
    assert measured["scaling"] == measured["copy"] == []
    for machine in ({"kernel_isa": "avx512"}, {"kernel_isa": "avx512", "cpu": "AMD EPYC"}):
        for target in targets.targets(machine):
            assert {target.contender, target.against} <= set(measured[target.workload])
    assert "radam" not in measured["eegnet"]
    one = speed._parse(["--check", "--workload", "hslt"])
    assert speed._contenders(one, "hslt") == measured["hslt"]
    assert speed._contenders(one, "eegnet") == []
    assert "radam" in speed._contenders(speed._parse([]), "eegnet")


def test_ratios_are_taken_within_rounds_and_through_the_yardstick(part: Any) -> None:
    results = part("results")

    def record(name: str, session: str, ours: list[float], yard: list[float]) -> Any:
        base = results.Record("w", "w", 1, "kept", name, name, 1, 1)
        base.session, base.samples_us, base.yardstick_us = session, ours, yard
        return base

    a = record("afor-fused", "s", [1.0, 10.0, 2.0], [2.0, 20.0, 4.0])
    b = record("adam", "s", [4.0, 40.0, 8.0], [2.0, 20.0, 4.0])
    assert results.ratio(a, b).median == 0.25  # although the second round was ten times slower
    c = record("released", "t", [30.0], [3.0])
    assert results.ratio(a, c).median == pytest.approx(0.05)


def test_runs_with_one_instruction_set_are_put_together(part: Any) -> None:
    results = part("results")

    def run(isa: str, workload: str, busy: float) -> Any:
        machine = {"cpu": "x", "kernel_isa": isa, "clock": "wall", "cores_used_by_others": busy}
        record = results.Record(workload, workload, 1, "kept", "adam", "Adam", 1, 1)
        return results.Results(machine, [record])

    joined = results.join([run("a", "small", 0.1), run("b", "small", 0.0), run("a", "large", 0.5)])
    assert [[r.workload for r in one.records] for one in joined] == [["small", "large"], ["small"]]
    assert joined[0].machine["cores_used_by_others"] == 0.5


def test_processor_time_is_named_above_the_tables(part: Any) -> None:
    results, tables = part("results"), part("tables")
    machine = {**results.describe_machine(), "clock": "processor", "cores_used_by_others": 1.5}
    text = tables.render(results.Results(machine))
    assert "processor time of all threads" in text
    assert "1.50 cores" in text
    assert "do not quote" not in text
    assert "do not quote" in tables.render(results.Results({**machine, "clock": "wall"}))
