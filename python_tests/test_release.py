"""What a release is made of: the wheel's symbols, the sdist, the tag, the workflows."""

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
HAS_TOOLS = shutil.which("g++") and shutil.which("nm") and shutil.which("readelf")


@pytest.fixture
def release(monkeypatch, tmp_path):
    """The script, for a tree with its own version and changelog."""
    monkeypatch.syspath_prepend(REPOSITORY / "build_tools")
    path = str(REPOSITORY / "build_tools" / "release")
    loader = importlib.machinery.SourceFileLoader("release", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "rotcell").mkdir()
    (tmp_path / "rotcell" / "_version.py").write_text('"""Text."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [1.2.3] - 2026-01-31\n\n### Fixed\n\n"
        "- A bug.\n\n## [1.2.2] - 2025-12-31\n\n- Old.\n"
    )
    return module


def test_a_tag_must_be_the_version_and_have_its_changes(release, tmp_path):
    assert list(release.obstacles("v1.2.3")) == []
    wrong = ["the tag v1.2.4 must be v1.2.3: rotcell/_version.py"]
    assert list(release.obstacles("v1.2.4")) == wrong
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert list(release.obstacles("v1.2.3")) == ["CHANGELOG.md has no section '## [1.2.3] - DATE'"]


def test_the_text_of_a_release_is_its_section_of_the_changelog(release, tmp_path):
    release.write_notes(tmp_path)
    assert (tmp_path / "notes.md").read_text() == "### Fixed\n\n- A bug.\n"


def test_scripts_that_workflows_call_are_there():
    workflows = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
    if not workflows:
        pytest.skip("not a clone")
    for workflow in workflows:
        text = workflow.read_text(encoding="utf-8")
        called = re.findall(r"(?<![\w/])(?:\.ci|build_tools|\.github/workflows)/\w[\w.]*", text)
        for script in called:
            path = REPOSITORY / script
            assert path.is_file(), f"{workflow.name} calls {script}"
            assert script.endswith(".yml") or os.access(path, os.X_OK), script


def test_actions_are_pinned_to_commits():
    """A tag such as v4 can be moved to other code, which would run with the rights of a release."""
    for workflow in (REPOSITORY / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: (.*)", workflow.read_text(encoding="utf-8")):
            is_pinned = re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
            assert used.startswith("./") or is_pinned, f"{workflow.name}: {used}"


def build_sdist(tree, output):
    environment = os.environ | {
        "PYTHONPATH": str(tree / "build_tools"),
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    script = "import sys, backend; backend.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", script, str(output)]
    subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=True)
    (sdist,) = output.glob("*.tar.gz")
    return sdist


def test_an_sdist_has_sources_alone_and_makes_itself_again(tmp_path):
    pytest.importorskip("setuptools", "77")
    first = build_sdist(REPOSITORY, tmp_path / "first")
    with tarfile.open(first) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
        archive.extractall(tmp_path / "unpacked")
    left_out = r"(results|bench/results|\.ci|\.github|[^/]*\.egg-info)/|.*\.(so|pyc)$"
    assert [name for name in names if re.match(left_out, name)] == []
    assert {"pyproject.toml", "setup.py", "PKG-INFO", "COMMIT", "rotcell/__init__.py"} <= set(names)
    (tree,) = (tmp_path / "unpacked").iterdir()
    assert build_sdist(tree, tmp_path / "second").read_bytes() == first.read_bytes()


def check_symbols(tmp_path, source, *options):
    library = tmp_path / "library.so"
    (tmp_path / "library.cpp").write_text(source)
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-Wl,-z,undefs"]
    subprocess.run(["g++", *flags, tmp_path / "library.cpp", "-o", library], check=True)
    script = REPOSITORY / "build_tools" / "check_symbols.py"
    command = [sys.executable, str(script), str(library), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not HAS_TOOLS, reason="needs g++ and binutils")
def test_a_symbol_that_is_too_new_is_refused(tmp_path):
    source = """
extern "C" char __libc_single_threaded;
char use() { return __libc_single_threaded; }
"""
    checked = check_symbols(tmp_path, source)
    assert checked.returncode == 0, checked.stderr
    newest = re.search(r"GLIBC_2\.(\d+)", checked.stdout)
    if newest is None or int(newest[1]) <= 28:
        pytest.skip("this C library is too old to have a newer symbol")
    checked = check_symbols(tmp_path, source, "--manylinux", "2_28")
    assert checked.returncode == 1
    assert "needs GLIBC_2.32, which manylinux_2_28 does not have" in checked.stderr


@pytest.mark.skipif(not HAS_TOOLS, reason="needs g++ and binutils")
def test_a_symbol_that_no_library_of_the_system_has_is_refused(tmp_path):
    checked = check_symbols(tmp_path, 'extern "C" int mystery(); int use() { return mystery(); }')
    assert checked.returncode == 1
    assert "needs what no C or C++ library has: mystery" in checked.stderr
