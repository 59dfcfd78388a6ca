"""Find the store of a study."""

from pathlib import Path

from afor.bench.common.errors import ConfigError, StoreError

FOLDER = Path("results")


def store_path(study: str, store: Path | None = None, part: tuple[int, int] | None = None) -> Path:
    """Return the store of a study: the one named, else `results/NAME.db`, a part with its number.

    >>> str(store_path("paper", part=(2, 8)))
    'results/paper.part-2-of-8.db'
    """
    if store is not None:
        return store
    suffix = f".part-{part[0]}-of-{part[1]}" if part else ""
    return FOLDER / f"{study}{suffix}.db"


def find_store(study_or_path: str, store: Path | None = None) -> Path:
    """Return an existing store, given a study's name, its TOML file or the store itself."""
    if store is not None:
        return store
    path = Path(study_or_path)
    if path.suffix == ".db":
        return path
    if path.suffix == ".toml":
        from afor.bench.study.schema import load_study

        return store_path(load_study(study_or_path).name)
    found = store_path(study_or_path)
    if not found.exists():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.db"))) or "none"
        raise StoreError(
            f'There are no results of "{study_or_path}" here ({found} is missing; found: {known}). '
            f"Make them with `afor run {study_or_path}`, or name a store with --store."
        )
    return found


def parse_part(text: str) -> tuple[int, int]:
    """Read `i/n`; ConfigError for anything else.

    >>> parse_part("2/8")
    (2, 8)
    """
    first, slash, second = text.partition("/")
    if slash and first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second):
        return int(first), int(second)
    raise ConfigError(f'--shard "{text}": expected i/n with i from 1 to n, such as 2/8.')
