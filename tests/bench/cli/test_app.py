"""The table of commands, their help texts, and what is imported for them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import afor
from afor.bench.cli import app as app_module
from afor.bench.cli.app import app
from afor.bench.cli.lazy import LazyGroup

runner = CliRunner()


def all_commands():
    """Return every command that does something, by its words after `afor`."""

    def walk(words, command):
        children = getattr(command, "commands", None)
        if not children:
            yield words, command
            return
        for name, child in children.items():
            loaded = command.load(name) if isinstance(command, LazyGroup) else child
            yield from walk((*words, name), loaded)

    return dict(walk((), ROOT))


ROOT = typer.main.get_command(app)
COMMANDS = all_commands()
SUMMARIES = {**app_module.COMMANDS, **app_module.STORE_COMMANDS, **app_module.ANALYSES}


def ids(words):
    return " ".join(words)


def modules_after(*words):
    """Return the modules that a command imports in a fresh interpreter."""
    script = (
        "import json, sys\n"
        "from afor.bench.cli.entry import main\n"
        f"sys.argv = {['afor', *words]!r}\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("group", [(), ("store",), ("analyse",)], ids=ids)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(group):
    loaded = ROOT.load(*group) if group else ROOT
    for name, (_, summary) in loaded.table.items():
        assert loaded.load(name).help.splitlines()[0] == summary
        assert len(summary) <= 64  # one line of `afor --help` in 80 columns


def test_the_first_screen_has_at_most_17_commands_each_under_a_heading():
    listed = [name for names in app_module.PANELS.values() for name in names]
    assert sorted(listed) == sorted(app_module.COMMANDS)
    assert len(listed) <= 17


@pytest.mark.parametrize("words", COMMANDS, ids=ids)
def test_every_argument_and_option_has_a_help_text_that_is_shown_whole(words):
    for parameter in COMMANDS[words].params:
        assert parameter.help, parameter.name
        assert parameter.help[-1] in ".", parameter.help
        assert "[" not in parameter.help, "rich takes words in brackets for markup"


@pytest.mark.parametrize("words", COMMANDS, ids=ids)
def test_the_help_of_a_command_ends_with_an_example_that_parses(words):
    shown = runner.invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    last = shown.stdout.strip().splitlines()[-1].strip()
    assert last.startswith(f"Example: afor {' '.join(words)}")
    example = shlex.split(last.removeprefix("Example: ").partition(" > ")[0])
    assert example[: 1 + len(words)] == ["afor", *words]
    COMMANDS[words].make_context(words[-1], example[1 + len(words) :])  # checks, runs nothing


def test_jobs_says_what_zero_means():
    with_jobs = [words for words, c in COMMANDS.items() if any(p.name == "jobs" for p in c.params)]
    assert ("run",) in with_jobs
    for words in with_jobs:
        text = runner.invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).stdout
        assert "0 uses all available cores" in text


def visible_options(command):
    return [
        p for p in command.params
        if p.param_type_name == "option" and p.name != "help" and not p.hidden
    ]  # fmt: skip


def test_all_commands_together_show_at_most_180_options():
    assert sum(len(visible_options(command)) for command in COMMANDS.values()) <= 180


def test_a_letter_stands_for_one_option_and_an_option_has_one_letter():
    spellings = {
        tuple(sorted(p.opts)) for c in COMMANDS.values() for p in visible_options(c)
    }  # fmt: skip
    short = [name for names in spellings for name in names if not name.startswith("--")]
    long = [name for names in spellings for name in names if name.startswith("--")]
    assert len(short) == len(set(short))
    assert len(long) == len(set(long))


@pytest.mark.parametrize("name", ["--json", "--jobs", "--margin", "--root", "--study", "--trust"])
def test_an_option_of_several_commands_means_the_same_in_all(name):
    texts = {
        p.help
        for words, c in COMMANDS.items()
        for p in visible_options(c)
        if name in p.opts and words[0] != "data"  # a data set alone has one root
    }
    assert len(texts) == 1, texts


FOREIGN = {"--nthreads", "--resources", "--wrap", "--array", "--prepare"}  # of other programs


def test_messages_name_options_that_exist():
    known = {
        name for c in COMMANDS.values() for p in c.params for name in (*p.opts, *p.secondary_opts)
    }
    known |= {name for p in ROOT.params for name in p.opts} | {"--help"} | FOREIGN
    sources = Path(afor.__file__).parent / "bench"
    named = {
        (name, path.name)
        for path in sources.rglob("*.py")
        for name in re.findall(r"(?<![\w(-])--[a-z][a-z-]+[a-z]", path.read_text("utf-8"))
    }
    assert sorted((name, file) for name, file in named if name not in known) == []


def test_a_file_to_write_is_called_output_everywhere():
    for words, command in COMMANDS.items():
        for parameter in command.params:
            spelled = {*parameter.opts}
            if parameter.name == "output":
                assert spelled == {"--output", "-o"}, words
            assert parameter.hidden or not spelled & {"--to", "--out", "--target"}, words


def test_the_help_imports_the_module_of_no_command():
    modules = modules_after("--help")
    names = {f"afor.bench.cli.{module}" for module, _ in SUMMARIES.values()} - {app_module.__name__}
    assert names & modules == set()


def test_an_unknown_command_is_answered_with_the_nearest():
    shown = runner.invoke(app, ["demos"])
    assert shown.exit_code == 2
    assert "Did you mean 'demo'" in shown.output


def test_version_is_that_of_the_package():
    shown = runner.invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"afor {afor.__version__}\n")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("afor st", {"study", "status", "store"}),
        ("afor store f", {"failures"}),
        ("afor data im", {"import"}),
    ],
)
def test_the_shell_completes_commands(typed, expected):
    words = typed.split()
    environment = {
        "_AFOR_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    shown = runner.invoke(app, [], prog_name="afor", env=environment)
    assert set(shown.stdout.split()) == expected


def test_the_shell_completes_options_of_a_command_that_is_loaded_for_it():
    environment = {
        "_AFOR_COMPLETE": "complete_bash",
        "COMP_WORDS": "afor status --js",
        "COMP_CWORD": "2",
    }
    shown = runner.invoke(app, [], prog_name="afor", env=environment)
    assert shown.stdout.split() == ["--json"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("afor plan sens", {"sensitivity"}),
        ("afor run demo --optimizer rada", {"radam", "radam_decoupled"}),
        ("afor judge ki", {"kitchen"}),
        ("afor run demo --dataset physio", {"physionet_mi"}),
        ("afor plan demo --backbone hs", {"hslt", "hslt_authors"}),
        ("afor data check bci", {"bci2a"}),
        ("afor table mai", {"main"}),
        ("afor figure fold", {"folds"}),
        ("afor table main kitchen --format lat", {"latex"}),
        ("afor judge kitchen --metric kap", {"kappa"}),
        ("afor judge kitchen --study ki", {"kitchen"}),
        ("afor plan demo --pilot ki", {"kitchen"}),
        ("afor run demo --lr-from ki", {"kitchen"}),
        ("afor run demo --device mp", {"mps"}),
        ("afor analyse memory sens", {"sensitivity"}),
        ("afor analyse shift demo --method radam_", {"radam_decoupled"}),
        ("afor optimizers rada", {"radam", "radam_decoupled"}),
        ("afor models hs", {"hslt", "hslt_authors"}),
        ("afor store merge all.db ki", {"kitchen"}),
    ],
)
def test_the_shell_completes_values(typed, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "kitchen.db").touch()
    environment = {
        "_AFOR_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    shown = runner.invoke(app, [], prog_name="afor", env=environment)
    assert set(shown.stdout.split()) == expected
