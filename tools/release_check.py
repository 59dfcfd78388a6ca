"""Say whether this commit can be released; `make release-check` runs it.

    python tools/release_check.py            # all checks; needs the extras dev and docs
    python tools/release_check.py --quick    # without environments and documentation

Everything is built from the files of the last commit, outside the repository. The environments, one
with `constraints.txt` and one with `constraints-oldest.txt`, get the wheel, its extra bench and the
torch of this environment. Exit code 1 when a check fails.
"""

import argparse
import email
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDER = "github.com/OWNER"
KERNELS = ("afor/native/_kernel.", "afor/bench/models/native/_eegnet.")
LARGEST = 3_000_000  # bytes of an archive
BORROWED = ("torch", "sympy", "mpmath", "networkx", "fsspec", "typing_extensions")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
LOAD = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
"""


class CheckError(Exception):
    """What keeps this commit from being released, in one sentence."""


def run(command: list[str], **options: object) -> str:
    """Run a command and return what it prints; raise CheckError with its last lines."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=variables, **options
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise CheckError(f"{' '.join(map(str, command[:4]))} …: " + " / ".join(lines))
    return done.stdout.strip()


def version() -> str:
    """Return the version of the sources."""
    text = (ROOT / "src" / "afor" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)[1]


def check_address() -> str:
    """Refuse the placeholder of the repository's address."""
    files = run(["git", "ls-files"], cwd=ROOT).splitlines()
    this = Path(__file__).relative_to(ROOT).as_posix()
    found = [
        name
        for name in files
        if name != this and PLACEHOLDER in (ROOT / name).read_bytes().decode("utf-8", "ignore")
    ]
    if found:
        raise CheckError(f"put the address of the repository in place of OWNER: {', '.join(found)}")
    return "set"


def check_version() -> str:
    """Compare version and date in the package, the changelog, the citation and the tags."""
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", read("CITATION.cff"), re.M))
    logged = re.search(r"^## \[(\d[^]]*)\] - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.M)
    if logged is None or logged[1] != version():
        raise CheckError(f"CHANGELOG.md has no section [{version()}] with a date before others")
    if cited != {"version": logged[1], "date-released": logged[2]}:
        raise CheckError(f"CITATION.cff has {cited}, CHANGELOG.md {logged[1]} of {logged[2]}")
    return f"{logged[1]} of {logged[2]}"


def check_tag() -> str:
    """Refuse another commit under the tag of this version, and another tag on this commit."""
    head = run(["git", "rev-parse", "HEAD"], cwd=ROOT)
    tag = f"v{version()}"
    if tag not in run(["git", "tag"], cwd=ROOT).splitlines():
        return f"{tag} is free"
    if run(["git", "rev-parse", f"{tag}^{{commit}}"], cwd=ROOT) != head:
        raise CheckError(f"the tag {tag} is another commit; raise the version")
    return f"{tag} is this commit"


def check_clean() -> str:
    """Refuse changes that are not committed: they would not be built."""
    if changed := run(["git", "status", "--porcelain"], cwd=ROOT):
        raise CheckError(f"not committed: {' '.join(changed.split()[1::2][:5])}")
    return run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT)


def read(name: str) -> str:
    """Return a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source distribution from the last commit and the wheel from it; return both."""
    tree = folder / "tree"
    tree.mkdir()
    archive = folder / "tree.tar"
    run(["git", "archive", "-o", str(archive), "HEAD"], cwd=ROOT)
    shutil.unpack_archive(archive, tree, filter="data")
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run([sys.executable, "-W", "ignore", "-c", code, str(folder)], cwd=tree)
    (sdist,) = folder.glob("*.tar.gz")
    run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(sdist)])
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def check_archives(sdist: Path, wheel: Path) -> str:
    """Look at names, kernels, sizes and licences of the archives."""
    if not wheel.name.startswith(f"afor-{version()}-cp311-abi3-"):
        raise CheckError(f"{wheel.name} is not a wheel for every Python from 3.11 on")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        licences = {name: files.read(name) for name in names if name.endswith("LICENSE")}
    for kernel in KERNELS:
        if not any(name.startswith(kernel) for name in names):
            raise CheckError(f"{wheel.name} has no {kernel}*: no working C compiler?")
    copies = Counter(hashlib.sha256(text).hexdigest() for text in licences.values())
    if twice := [n for n, t in licences.items() if copies[hashlib.sha256(t).hexdigest()] > 1]:
        raise CheckError(f"licences stand twice in the wheel: {', '.join(twice)}")
    for path in (sdist, wheel):
        if path.stat().st_size > LARGEST:
            raise CheckError(f"{path.name} has {path.stat().st_size / 1e6:.1f} MB")
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in (sdist, wheel))
    return f"{sizes}, {len(licences)} licences"


def check_readme(wheel: Path) -> str:
    """Render README as a package page does, and refuse links that only work in a checkout."""
    from readme_renderer.markdown import render

    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        page = render(email.message_from_bytes(files.read(name)).get_payload())
    if page is None:
        raise CheckError("README.md cannot be rendered")
    targets = re.findall(r'(?:href|src)="([^"]+)"', page)
    if bad := [target for target in targets if not target.startswith(("https://", "#"))]:
        raise CheckError(f"README.md links to {', '.join(bad)}")
    return f"{len(targets)} links"


def check_interpreters(wheel: Path, folder: Path) -> str:
    """Load the kernels of the wheel with every interpreter from 3.11 on that is here."""
    shutil.unpack_archive(wheel, folder / "unpacked", format="zip")
    kernels = [str(path) for path in (folder / "unpacked").rglob("*.abi3.*")]
    loaded = []
    for minor in range(11, 20):
        if python := shutil.which(f"python3.{minor}"):
            try:
                run([python, "-c", LOAD, *kernels])
            except CheckError as error:
                if "pyenv" in str(error):  # its stand-in for a version that is not selected
                    continue
                raise
            loaded.append(f"3.{minor}")
    return f"the kernels load with Python {', '.join(loaded)}"


def check_environment(wheel: Path, constraints: str, folder: Path) -> str:
    """Install the wheel with its extra bench in a new environment and run a small study there."""
    home = folder / Path(constraints).stem
    run([sys.executable, "-m", "venv", str(home)])
    python = next(path for path in home.glob("*/python*") if path.stem == "python")
    packages = next(home.glob("**/site-packages"))
    for path in torch_files():
        if not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    limits = ["--constraint", str(ROOT / constraints)]
    run([*pip, "--no-compile", *limits, f"{wheel}[bench]"])
    said = run([str(python), str(ROOT / "tools" / "try_wheel.py")], cwd=home)
    run([str(python.parent / "afor"), "run", "smoke", "--store", "smoke.db"], cwd=home)
    return f"{said}; `afor run smoke` passed"


def torch_files() -> Iterator[Path]:
    """Yield the files and folders of torch, and what it alone needs, in this environment."""
    for name in BORROWED:
        distribution = importlib.metadata.distribution(name)
        tops = {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        yield from (Path(str(distribution.locate_file(top))) for top in sorted(tops))


def check_documentation(folder: Path) -> str:
    """Build the documentation with warnings as errors."""
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    run([*sphinx, str(ROOT / "docs"), str(folder / "html")])
    return f"{len(list((folder / 'html').rglob('*.html')))} pages"


def main() -> int:
    """Make every check, print a line for each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="no environments, no documentation")
    options = parser.parse_args()
    failed = []

    def check(name: str, function: Callable[..., object], *arguments: object) -> object:
        try:
            outcome = function(*arguments)
        except CheckError as error:
            failed.append(name)
            print(f"refused  {name:14} {error}", flush=True)
            return None
        text = ", ".join(p.name for p in outcome) if isinstance(outcome, tuple) else outcome
        print(f"ok       {name:14} {text}", flush=True)
        return outcome

    with tempfile.TemporaryDirectory(prefix="afor-release-") as temporary:
        folder = Path(temporary)
        check("address", check_address)
        check("version", check_version)
        check("tag", check_tag)
        check("commit", check_clean)
        if built := check("build", build, folder):
            sdist, wheel = built
            check("archives", check_archives, sdist, wheel)
            check("readme", check_readme, wheel)
            check("interpreters", check_interpreters, wheel, folder)
            if not options.quick:
                for constraints in ("constraints.txt", "constraints-oldest.txt"):
                    check(Path(constraints).stem, check_environment, wheel, constraints, folder)
        if not options.quick:
            check("documentation", check_documentation, folder)
    print(f"Not ready: {', '.join(failed)}." if failed else f"Ready to tag v{version()}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
