"""The examples run, and docs/python.md shows a part of one as it is."""

import pathlib
import re
import subprocess
import sys

import pytest

import ferry

ROOT = pathlib.Path(__file__).parents[2]


def test_example():
    done = subprocess.run([sys.executable, "-W", "error", ROOT / "examples" / "moe_layer.py"], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("64 tokens to 8 experts on 4 ranks and back")


def test_the_page_has_the_text_of_the_example():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    shown = re.search(r"```python\n(def body.*?)```", page, re.DOTALL).group(1)
    assert shown in (ROOT / "examples" / "moe_layer.py").read_text(encoding="utf-8")


def test_the_hooks_of_the_page_run():
    page = (ROOT / "docs" / "python-hooks.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n(import.*?)```", page, re.DOTALL).group(1), {})  # pylint: disable=exec-used


def test_extras_of_pages_and_docstrings_exist():
    tomllib = pytest.importorskip("tomllib", reason="Python has tomllib from 3.11 on")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    texts = [page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    named = {name for text in texts for found in re.findall(r"'\.\[([\w,]+)\]'", text) for name in found.split(",")}
    assert {"bf16", "nvshmem"} <= named <= extras.keys()
    assert "extra nvshmem" in ferry.World.from_nvshmem.__doc__ and extras["nvshmem"] == ["nvidia-nvshmem-cu13"]
