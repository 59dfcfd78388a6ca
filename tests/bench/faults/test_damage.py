import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.store.database import Store, open_store
from afor.bench.store.files import export_rows
from afor.bench.store.repair import repair

COMMANDS = (
    ("export",),
    ("status", "--json"),
    ("store failures", "--json"),
    ("table", "main", "--format", "csv"),
)
COLUMNS = {
    "runs": ("status", "reason", "elapsed_s", "finished_at", "sha256", "content"),
    "studies": ("name", "toml", "sha256"),
    "plan": (
        *("study", "position", "dataset", "backbone", "method", "fold", "repetition", "key"),
        *("entry", "rate", "is_search", "protocol"),
    ),
    "linear": ("metrics", "sha256"),
}


def numbers(path):
    """Return what the commands print of a store, or the error that each of them raises."""
    found = []
    for command in COMMANDS:
        name, *options = command
        words = (
            [*name.split(), str(path), *options] if name != "table" else [name, "main", str(path)]
        )
        words += options[1:] if name == "table" else []
        result = CliRunner().invoke(app, words)
        if result.exception is None:
            found.append(result.stdout)
        else:
            found.append(result.exception)
    return found


def values(path):
    """Return the numbers behind tables and exports by run, or the StoreError of each."""
    found = []
    for read in (Store.results, export_rows):
        try:
            with open_store(path) as store:
                rows = [row if isinstance(row, dict) else asdict(row) for row in read(store)]
                found.append({repr(row) for row in rows if row.get("status") != "open"})
        except StoreError as error:
            found.append(error)
    return found


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return a file with a fault of the kinds that disks and transfers make."""
    data = bytearray(content)
    kind = rng.randrange(5)
    if kind <= 1:
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        start, length = rng.randrange(len(data)), rng.choice((1, 4, 64, 512, 4096))
        data[start : start + length] = bytes(len(data[start : start + length]))
    elif kind == 3:
        a, b = (4096 * rng.randrange(len(data) // 4096) for _ in range(2))
        data[a : a + 4096], data[b : b + 4096] = data[b : b + 4096], data[a : a + 4096]
    else:
        start, length = rng.randrange(len(data)), rng.choice((1, 4, 64))
        data[start : start + length] = rng.randbytes(len(data[start : start + length]))
    return bytes(data)


def damage_rows(path, rng: random.Random) -> None:
    """Change, swap, remove or repeat rows of a sound file, past the digests."""
    connection = sqlite3.connect(path, isolation_level=None)
    table = rng.choice(("runs", "runs", "studies", "plan", "plan", "plan"))
    column = rng.choice(COLUMNS[table])
    name = {"runs": "key", "studies": "name"}.get(table)
    rows = connection.execute(f"SELECT {name or 'position'}, {column} FROM {table}").fetchall()
    (place, value), (other_place, other) = rng.choice(rows), rng.choice(rows)
    where = f"{name or 'position'} = ?"
    kind = rng.randrange(3)
    try:
        if kind == 0:
            connection.execute(f"DELETE FROM {table} WHERE {where}", (place,))
        elif kind == 1:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (other, place))
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE {where}", (value, other_place)
            )
        else:
            changed = value + 1 if isinstance(value, int | float) else value[1:] + value[:1]
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (changed, place))
    except sqlite3.IntegrityError:
        pass  # a change that the tables themselves refuse
    connection.close()


@pytest.fixture
def sound(tiny, monkeypatch, filled_once):
    """A small store with runs of every status, closed; trained once, each test has a copy."""
    monkeypatch.chdir(tiny.folder)
    tiny.write(optimizers=("adam", "afor", "raiser", "diverger"), subjects=3, repetitions=2)

    def train(folder):
        tiny.run_inline()
        shutil.move(tiny.store, folder)
        shutil.move(tiny.log, folder)

    trained = filled_once("sound", train)
    tiny.store.parent.mkdir(exist_ok=True)
    shutil.copy(trained / tiny.store.name, tiny.store)
    shutil.copy(trained / tiny.log.name, tiny.log)
    return tiny.store


def judge(path, expected):
    """Return whether the damage was noticed; anything but runs as written or a StoreError fails.

    A run that was removed is missing: it counts as not trained.
    """
    noticed = False
    for found, right in zip(values(path), expected, strict=True):
        if isinstance(found, StoreError):
            assert str(path) in str(found)
            noticed = True
        else:
            assert found <= right
            noticed |= found != right
    return noticed


def fuzz(store, damage, count, seed):
    """Damage a sound store again and again; return how often the damage was noticed."""
    expected, content = values(store), store.read_bytes()
    rng = random.Random(seed)
    noticed = 0
    for _ in range(count):
        store.write_bytes(content)
        damage(store, rng)
        noticed += judge(store, expected)
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
    store.write_bytes(content)
    return noticed


def damage_file(store, rng):
    store.write_bytes(damage_bytes(store.read_bytes(), rng))


def test_random_damage_to_bytes_is_refused_or_changes_no_number(sound):
    assert fuzz(sound, damage_file, 100, seed=1) > 50


def test_random_damage_to_rows_is_refused_or_changes_no_number(sound):
    assert fuzz(sound, damage_rows, 100, seed=2) > 40


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thousands_of_random_damages_are_refused_or_change_no_number(sound):
    assert fuzz(sound, damage_file, 1500, seed=4) > 750
    assert fuzz(sound, damage_rows, 1500, seed=5) > 600


def change(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


SWAP = (
    "UPDATE plan SET method = 'x' WHERE method = 'adam'",
    "UPDATE plan SET method = 'adam', entry = 'adam' WHERE method = 'afor'",
    "UPDATE plan SET method = 'afor', entry = 'afor' WHERE method = 'x'",
)
CHANGES = {
    "optimizers swapped": SWAP,
    "a fold": ("UPDATE plan SET fold = 7 WHERE fold = 1",),
    "a learning rate": ("UPDATE plan SET rate = rate * 2",),
    "a run listed twice": (
        "UPDATE plan SET key = (SELECT min(key) FROM plan) WHERE method = 'adam'",
    ),
}
CHANGES_OF_RUNS = {
    "a status": ("UPDATE runs SET status = 'diverged' WHERE status = 'done'",),
    "a reason": ("UPDATE runs SET reason = 'another'",),
    "seconds": ("UPDATE runs SET elapsed_s = 1000.0",),
    "a date": ("UPDATE runs SET finished_at = '2020-01-01T00:00:00Z'",),
}


@pytest.mark.parametrize("what", CHANGES)
def test_no_column_of_a_plan_can_be_changed_unseen(sound, what):
    change(sound, *CHANGES[what])
    for found in numbers(sound):
        assert isinstance(found, StoreError)
        assert f"afor store repair {sound} --output NEW.db" in str(found)


@pytest.mark.parametrize("what", CHANGES_OF_RUNS)
def test_no_column_of_a_run_can_be_changed_unseen_by_tables_and_exports(sound, what):
    change(sound, *CHANGES_OF_RUNS[what])
    exported, _, _, table = numbers(sound)
    for found in (exported, table):
        assert isinstance(found, StoreError)
        assert "is not what was written" in str(found)
    with open_store(sound) as store, pytest.raises(StoreError, match="is not what was written"):
        store.check()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM plan WHERE method = 'adam'",
        "DELETE FROM studies",
        "UPDATE studies SET toml = replace(toml, 'repetitions = 2', 'repetitions = 9')",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM plan; END",
    ],
)
def test_nothing_can_be_removed_or_added_unseen(sound, statement):
    change(sound, statement)
    for found in numbers(sound):
        assert isinstance(found, StoreError)
    with pytest.raises(StoreError, match="is damaged"):
        open_store(sound, write=True)


def test_text_that_is_not_utf_8_is_a_damaged_store_not_a_traceback(sound):
    change(sound, "UPDATE runs SET reason = CAST(x'ff80fe' AS TEXT)")
    for found in numbers(sound):
        assert isinstance(found, StoreError)


def test_a_repaired_store_has_all_that_is_sound_and_names_what_is_lost(sound, tmp_path):
    with open_store(sound) as store:
        (first, *others) = sorted(store.statuses())
        runs = {key: store.run(key) for key in others}
        plan = store.runs()
    change(
        sound,
        f"UPDATE runs SET content = CAST(replace(content, '0.', '1.') AS BLOB) WHERE key='{first}'",
        f"UPDATE runs SET reason = 'another' WHERE key = '{others[0]}'",
    )
    target = tmp_path / "new.db"
    result = CliRunner().invoke(app, ["store", "repair", str(sound), "--output", str(target)])
    assert result.exit_code == 1
    assert result.stdout == f"{target}: 23 runs, 1 study\nlost: run {first[:12]}\n"
    assert f"Next: afor run tiny --store {target}" in result.stderr
    with open_store(target) as store:
        store.check()
        assert {key: store.run(key) for key in others} == runs
        assert [cell.key for cell in store.runs()] == [cell.key for cell in plan]
        assert [c.key for c in store.runs() if c.status == "open"] == [first]


def test_a_repaired_store_goes_on_where_only_the_list_of_runs_was_damaged(sound, tiny, tmp_path):
    before = tiny.numbers()
    change(sound, *SWAP)
    target = tmp_path / "new.db"
    result = CliRunner().invoke(app, ["store", "repair", str(sound), "--output", str(target)])
    assert "lost: study tiny; run its file into" in result.stdout
    trained = len(tiny.trainings())
    tiny.run("--store", target, code=1)  # the failed runs
    assert len(tiny.trainings()) == trained
    assert tiny.numbers(target) == before


def test_an_intact_store_is_copied_whole(sound, tiny, tmp_path):
    result = CliRunner().invoke(
        app, ["store", "repair", str(sound), "--output", str(tmp_path / "new.db")]
    )
    assert result.exit_code == 0, result.output
    assert tiny.numbers(tmp_path / "new.db") == tiny.numbers()
    with open_store(tmp_path / "new.db") as new, open_store(sound) as old:
        assert new.runs() == old.runs()


def test_what_randomly_damaged_stores_still_hold_is_never_another_number(sound, tiny, tmp_path):
    right, content = tiny.numbers(), sound.read_bytes()
    rng = random.Random(6)
    kept = 0
    for number in range(20):
        sound.write_bytes(damage_bytes(content, rng))
        target = tmp_path / f"new-{number}.db"
        try:
            repair(sound, target)
        except StoreError:
            continue
        found = tiny.numbers(target)
        assert found.items() <= right.items()
        kept += len(found)
    assert kept > 10 * len(right)


def test_a_repair_never_writes_over_a_file_or_from_nothing(sound, tmp_path):
    with pytest.raises(ConfigError, match="exists already"):
        repair(sound, sound)
    with pytest.raises(StoreError, match="There is no store"):
        repair(tmp_path / "absent.db", tmp_path / "new.db")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"SQLite format 3\x00" + bytes(5000))
    with pytest.raises(StoreError, match="no run in it can be read"):
        repair(broken, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
