"""What is published: one version number, a complete source distribution, a wheel that works."""

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import afor

ROOT = Path(__file__).parents[1]


def test_the_version_is_written_once_and_cited_as_it_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "afor.__version__"}
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == afor.__version__


def test_the_changelog_has_a_section_for_the_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == afor.__version__


def test_the_address_of_the_repository_is_the_same_everywhere():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    cited = re.search(r'^repository-code: "(.+)"$', (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None
    assert cited[1] == urls["Source"]
    for name in ("Issues", "Changelog"):
        assert urls[name].startswith(urls["Source"] + "/")


def test_every_lower_bound_of_the_benchmark_is_the_version_that_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "constraints-oldest.txt").read_text()
    tested = dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))
    for requirement in project["optional-dependencies"]["bench"]:
        name, bound = requirement.split(">=")
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", tested[name]), requirement


@pytest.fixture
def release_check():
    spec = importlib.util.spec_from_file_location("release_check", ROOT / "tools/release_check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_release_is_refused_while_version_or_date_differ(release_check, monkeypatch, tmp_path):
    assert release_check.check_version().startswith(f"{afor.__version__} of 20")
    (tmp_path / "src" / "afor").mkdir(parents=True)
    for name in ("CHANGELOG.md", "CITATION.cff", "src/afor/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    release_check.check_version()
    cited = (tmp_path / "CITATION.cff").read_text()
    (tmp_path / "CITATION.cff").write_text(cited.replace("date-released: 20", "date-released: 19"))
    with pytest.raises(release_check.CheckError, match=r"CITATION\.cff has"):
        release_check.check_version()
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    with pytest.raises(release_check.CheckError, match="no section"):
        release_check.check_version()


def test_a_release_is_refused_without_the_address_of_the_repository(
    release_check, monkeypatch, tmp_path
):
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    monkeypatch.setattr(release_check, "__file__", str(folder / "release_check.py"))
    page = tmp_path / "page.md"
    page.write_text(f"https://{release_check.PLACEHOLDER}/afor")
    monkeypatch.setattr(release_check, "run", lambda *_, **__: "page.md\ntools/release_check.py")
    with pytest.raises(release_check.CheckError, match=r"OWNER: page\.md"):
        release_check.check_address()
    page.write_text("https://github.com/somebody/afor")
    (folder / "release_check.py").write_text(release_check.PLACEHOLDER)
    assert release_check.check_address() == "set"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=str)
def test_a_workflow_is_valid_yaml_and_has_jobs(path):
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(path.read_text())
    assert workflow["jobs"]
    for job in workflow["jobs"].values():
        assert "steps" in job or "uses" in job


STEPS = """
import afor, torch
from pathlib import Path
assert Path(afor.__file__).is_relative_to({home!r}), afor.__file__
for options in ({{}}, {{"foreach": False, "fused": False}}):
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    afor.AFOR([p], **options).step()
    assert (p < 1).all()
folder = Path(afor.__file__).parent
for name in ("native/kernel.c", "native/kernel_body.h", "native/kernel_set.h", "py.typed"):
    assert (folder / name).exists(), name
eegnet = ("eegnet.c", "eegnet_set.h", "eegnet_body.h")
eegnet = ("models/native/" + name for name in eegnet)
for name in ("study/presets/smoke.toml", *eegnet):
    assert (folder / "bench" / name).exists(), name
print(afor.__version__)
"""


@pytest.fixture(scope="module")
def sdist(filled_once, everywhere):
    def build(folder):
        build_sdist(everywhere.copy_sources(folder / "tree", kernel=False), folder)

    (archive,) = filled_once("sdist", build).glob("*.tar.gz")
    return archive


def build_sdist(tree, folder):
    build = (
        "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, str(folder)],
        cwd=tree, check=True, capture_output=True,
    )  # fmt: skip


def test_the_source_distribution_holds_what_the_wheel_is_built_from(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    suffixes = "py c h toml html css js json LICENSE npz"
    packaged = [*(f"*.{suffix}" for suffix in suffixes.split()), "py.typed"]
    sources = {
        str(path.relative_to(ROOT)) for glob in packaged for path in (ROOT / "src").rglob(glob)
    }
    assert sources - names == set()
    assert {"setup.py", "LICENSE", "README.md", "tests/conftest.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".png"))]
    assert sdist.stat().st_size < 3e6


def test_every_link_and_image_of_readme_works_on_a_package_page(sdist):
    render = pytest.importorskip("readme_renderer.markdown", reason="needs the extra dev").render
    with tarfile.open(sdist) as archive:
        (name,) = (name for name in archive.getnames() if name.count("/") == 1 and "PKG" in name)
        metadata = email.message_from_bytes(archive.extractfile(name).read())
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    page = render(metadata.get_payload())
    assert page is not None
    targets = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    files = f"(?:{source}/blob|{source.replace('github.com', 'raw.githubusercontent.com')})"
    here = [m[1] for m in (re.match(rf"{files}/v[\d.]+/(.+)", target) for target in targets) if m]
    assert "docs/images/report.png" in here
    assert "CITATION.cff" in here
    assert [path for path in here if not (ROOT / path.partition("#")[0]).exists()] == []


@pytest.mark.timeout(900)
def test_a_wheel_from_the_source_distribution_works_in_a_clean_environment(sdist, tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheels = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w"]
    subprocess.run([*pip, *wheels, str(tmp_path), str(sdist)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"afor-{afor.__version__}-cp311-abi3-")
    names = zipfile.ZipFile(wheel).namelist()
    has_compiler = any(filter(shutil.which, ("cc", "gcc", "clang")))
    for start in ("afor/native/_kernel", "afor/bench/models/native/_eegnet"):
        built = [n for n in names if n.startswith(start) and n.endswith(".so")]
        assert bool(built) == has_compiler, start
    home = tmp_path / "environment"
    venv.create(home)
    (interpreter,) = (p for p in home.glob("*/python*") if p.stem == "python")
    install = [
        "--python",
        str(interpreter),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",
    ]
    subprocess.run([*pip, *install, str(wheel)], check=True, capture_output=True)
    # torch comes from here: installing it again takes gigabytes
    import torch

    (packages,) = home.glob("**/site-packages")
    (packages / "borrowed.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ran = subprocess.run(
        [interpreter, "-c", STEPS.format(home=str(home))],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == afor.__version__
