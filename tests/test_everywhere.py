"""The script behind `make test-everywhere`, without the minutes that it takes."""

from pathlib import Path

TESTS = Path(__file__).parent


def test_every_file_that_is_marked_exists(everywhere, machine):
    for marked, quick in (
        (machine["numbers"], everywhere.QUICK_NUMBERS),
        (machine["files"], everywhere.QUICK_FILES),
    ):
        assert [name for name in marked if not (TESTS / name).exists()] == []
        for path in (everywhere.ROOT / name for name in quick):
            assert path.exists()
            assert any(path.is_relative_to(TESTS / name) for name in marked), path


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
        "<testsuites><testsuite>"
        '<testcase classname="tests.a" name="x"/>'
        '<testcase classname="tests.a" name="y"><failure/></testcase>'
        '<testcase classname="tests.a" name="z"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    outcome = everywhere.read_report(report, 2.0)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 1)
    lines = everywhere.table({"here": outcome}).splitlines()
    assert lines[1].split() == ["here", "1", "1", "1", "2"]
    assert lines[2].strip() == "tests.a::y"
    assert everywhere.read_report(tmp_path / "none.xml", 1.0).failed == 1


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
