"""Find the store of a study."""

import glob
from pathlib import Path

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.study.schema import load_study

FOLDER = Path("results")
FILE_SUFFIXES = (".db", ".csv", ".json", ".parquet")  # of stores and files of results


def store_path(study: str, store: Path | None = None, part: tuple[int, int] | None = None) -> Path:
    """Return the store file: the one that the user named, or `results/NAME.db`.

    `part` is the number of a shard and the number of shards, which has a store of its own.

    >>> str(store_path("paper", part=(2, 8)))
    'results/paper.part-2-of-8.db'
    """
    if store is not None:
        return store
    suffix = f".part-{part[0]}-of-{part[1]}" if part else ""
    return FOLDER / f"{study}{suffix}.db"


def find_store(study_or_path: str) -> Path:
    """Return the store or file of results that a command is pointed at.

    That is the name of a study whose store is `results/NAME.db`, the study's TOML file, or the file
    itself, which is not checked: a store, or a .csv, .json or .parquet file.

    Raises:
        StoreError: There are no results of a study of this name.
        ConfigError: The TOML file is not a valid study.
    """
    path = Path(study_or_path)
    if path.suffix.lower() in FILE_SUFFIXES:
        return path
    expected = store_path(study_or_path)
    is_toml = path.suffix == ".toml"
    if not is_toml and not expected.exists() and path.is_file():
        return path
    if is_toml or (not expected.exists() and Path(f"{study_or_path}.toml").is_file()):
        expected = store_path(load_study(study_or_path).name)
    if expected.exists():
        return expected
    parts = sorted(map(str, expected.parent.glob(f"{glob.escape(expected.stem)}.part-*-of-*.db")))
    if parts:
        raise StoreError(
            f"{expected} does not exist, but its parts do: {', '.join(parts)}. Bring them together "
            f"with `afor store merge {expected} {' '.join(parts)}`, or name one of them."
        )
    changed = sorted(map(str, expected.parent.glob(f"{glob.escape(expected.stem)}-*.db")))
    if is_toml and changed:
        raise StoreError(
            f"{expected} does not exist, but results of this study with other options do: "
            f"{', '.join(changed)}. Name one of them, or make these with `afor run {path}`."
        )
    if is_toml:
        return expected
    here = sorted(path.stem for path in FOLDER.glob("*.db"))
    raise StoreError(
        f'There are no results of "{study_or_path}": {expected} does not exist. Results here: '
        f"{', '.join(here) or 'none'}. Make them with `afor run {study_or_path}`, or "
        f"name the store file."
    )


def parse_part(text: str) -> tuple[int, int]:
    """Read `i/n`; raise ConfigError for anything else.

    >>> parse_part("2/8")
    (2, 8)
    """
    first, slash, second = text.partition("/")
    if slash and first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second):
        return int(first), int(second)
    raise ConfigError(f'--shard "{text}": expected i/n with i from 1 to n, such as 2/8.')
