"""What the wheel of this package says and has. It is pure Python, so making one takes a moment."""

from __future__ import annotations

import email.message
import email.parser
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("scikit_build_core")

FOLDER = pathlib.Path(__file__).parents[1]
CLONE = FOLDER.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    made = tmp_path_factory.mktemp("wheel")
    shutil.copytree(FOLDER, made / "package", ignore=shutil.ignore_patterns("__pycache__", "tests"))
    script = f"import scikit_build_core.build as build; print(build.build_wheel({str(made)!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=made / "package", text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout
    return zipfile.ZipFile(made / done.stdout.split()[-1])


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    place = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(place).decode())


def test_modules_types_and_licence_are_in_it(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    for name in ("deep_ep/__init__.py", "deep_ep/py.typed", "deep_ep/buffers/legacy.py", "deep_ep/utils/event.py",
                 "deep_ep/utils/refs.py"):
        assert name in names
    licence = next(name for name in names if name.endswith("LICENSE"))
    assert wheel.read(licence) == (CLONE / "LICENSE").read_bytes()


def test_it_wants_the_ferry_of_its_clone_with_torch(metadata: email.message.Message) -> None:
    found = re.search(r"project\(ferry VERSION (\d+\.\d+)\.\d+", (CLONE / "CMakeLists.txt").read_text())
    assert found is not None and metadata["Version"].startswith(found[1] + ".")
    wanted = [one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert wanted == [f"ferry-ep[torch]=={found[1]}.*"]


def test_its_page_has_no_links_into_the_clone(metadata: email.message.Message) -> None:
    links = re.findall(r"\]\(([^)]*)\)", str(metadata.get_payload()))
    assert links and all(link.startswith("https://") for link in links)
