"""The script behind `make test-everywhere`, without the minutes that it takes."""

from pathlib import Path

TESTS = Path(__file__).parent


def test_every_file_that_is_named_exists_and_a_quick_run_is_a_part_of_the_whole(everywhere):
    for environment in everywhere.ENVIRONMENTS:
        assert [name for name in environment.tests if not (TESTS / name).exists()] == []
        for quick in environment.quick:
            assert (TESTS / quick).exists()
            assert any(Path(quick).is_relative_to(name) for name in environment.tests), quick


def test_a_quick_run_is_a_pair(everywhere):
    assert sum(bool(environment.quick) for environment in everywhere.ENVIRONMENTS) == 2


def test_sources_are_copied_without_results_and_with_packages_of_that_name(everywhere, tmp_path):
    tree = everywhere.copy_sources(tmp_path / "tree", kernel=False)
    copied = {path.relative_to(tree) for path in tree.rglob("*.py")}
    sources = (everywhere.ROOT / "src").rglob("*.py")
    assert {path.relative_to(everywhere.ROOT) for path in sources} - copied == set()
    assert not (tree / ".git").exists()
    assert not list(tree.rglob("*.so"))


def test_compilers_and_nothing_else_are_hidden(everywhere, tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    hidden = ["cc", "gcc", "g++-13", "x86_64-linux-gnu-gcc-13", "clang", "clang++-18", "c++"]
    kept = ["python", "git", "gcov", "as", "ld", "ccache-stats", "rsync"]
    for name in [*hidden, *kept]:
        (programs / name).touch()
    monkeypatch.setenv("PATH", str(programs))
    links = {
        path.name for path in everywhere.programs_without_compilers(tmp_path / "bin").iterdir()
    }
    assert links >= set(kept)
    assert not links & set(hidden)


def test_the_table_counts_and_names_what_failed(everywhere, tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite time="2.0">'
        '<testcase classname="tests.a" name="x"/>'
        '<testcase classname="tests.a" name="y"><failure/></testcase>'
        '<testcase classname="tests.a" name="z"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    outcome = everywhere.read_report(report)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 1)
    lines = everywhere.table({"here": outcome}).splitlines()
    assert lines[1].split() == ["here", "1", "1", "1", "2"]
    assert lines[2].strip() == "tests.a::y"
    assert everywhere.read_report(tmp_path / "none.xml").failed == 1


def test_an_environment_with_a_report_is_not_run_again(everywhere, tmp_path, monkeypatch, capsys):
    ran = []

    def run(environment, files, options, reports):
        ran.append(environment.name)
        everywhere.report_of(environment, reports).write_text(
            '<testsuites><testsuite time="1"><testcase name="x"/></testsuite></testsuites>'
        )

    monkeypatch.setattr(everywhere, "run", run)
    for names in (["default", "1 thread"], ["1 thread", "LC_ALL=C"]):
        arguments = ["everywhere.py", "--reports", str(tmp_path), "--only", *names]
        monkeypatch.setattr("sys.argv", arguments)
        assert everywhere.main() == 0
    assert ran == ["default", "1 thread", "LC_ALL=C"]
    rows = capsys.readouterr().out.splitlines()[-3:]
    assert [row.split("  ")[0] for row in rows] == ["default", "1 thread", "LC_ALL=C"]


def test_a_read_only_tree_can_be_read_and_run(everywhere, tmp_path):
    script = tmp_path / "tree" / "run"
    script.parent.mkdir()
    script.touch()
    script.chmod(0o755)
    everywhere.make_read_only(script.parent)
    assert [path.stat().st_mode & 0o777 for path in (script, script.parent)] == [0o555, 0o555]
    script.parent.chmod(0o755)


def test_a_way_to_start_a_command_is_tried_first(everywhere):
    assert everywhere.works(["env"])
    assert not everywhere.works(["false"])
    assert not everywhere.works(["no-such-program"])
