"""What the package ferry-ep has and says: the archive of its sources, the files of Python in its wheel, its page."""

import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

pytest.importorskip("scikit_build_core", reason="it builds the package")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(call):
    """What the build says, and the name of the file that it makes."""
    done = subprocess.run([sys.executable, "-c", f"import scikit_build_core.build as build; print(build.{call})"], cwd=ROOT,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "deprecated" not in done.stdout
    return done.stdout.split()[-1]


def test_sources_are_those_of_the_project(tmp_path):
    with tarfile.open(tmp_path / build(f"build_sdist({str(tmp_path)!r})")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        (page,) = [name for name in archive.getnames() if name.count("/") == 1 and name.endswith("PKG-INFO")]
        links = re.findall(r"\]\(([^)]*)\)", archive.extractfile(page).read().decode())
    assert links and all(link.startswith("https://") for link in links), "an index has no other pages"
    assert {name.partition("/")[0] for name in names} == {
        "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "benchmarks", "cmake",
        "docs", "examples", "include", "pyproject.toml", "python", "src", "tests", "tool"}
    assert {"python/ferry/py.typed", "include/ferry/ferry.h", "cmake/FerryCuda.cmake", "docs/python.md"} <= names
    assert not [name for name in names if name.startswith(("benchmarks/results", "docs/images")) or "__pycache__" in name]


def test_the_wheel_has_all_of_the_python_package(tmp_path):
    made = build(f"build_wheel({str(tmp_path)!r}, {{'wheel.cmake': 'false', 'wheel.py-api': 'py3'}})")
    with zipfile.ZipFile(tmp_path / made) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("ferry/")}
    here = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python" / "ferry").rglob("*")
            if path.is_file() and path.suffix != ".pyc"}
    assert names == here
