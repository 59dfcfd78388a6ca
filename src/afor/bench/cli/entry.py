"""The entry point of the command `afor`: it works without the extra `afor[bench]` too."""

import sys

from afor import __version__

# The distributions of the extra `bench`, by the names of their packages.
BENCH_PACKAGES = frozenset(
    {
        *("numpy", "scipy", "matplotlib", "mne", "typer", "rich", "pydantic", "jinja2", "tomlkit"),
        *("filelock", "requests", "sklearn"),
    }
)


def main() -> None:
    """Run the command line; say what to install where a package of the benchmark is missing."""
    try:
        from afor.bench.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in BENCH_PACKAGES or "--debug" in sys.argv:
            raise
        if "--version" in sys.argv:
            sys.stdout.write(f"afor {__version__}\n")
            return
        sys.stderr.write(
            f"afor: the package {package}, which the benchmark needs, is not installed. "
            "Install it with: pip install 'afor[bench]', or pip install '.[bench]' in a checkout.\n"
        )
        raise SystemExit(1) from None
