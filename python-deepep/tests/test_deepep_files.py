"""DeepEP's own test files, unchanged, with this module in its place: two processes with a GPU each.

They are DeepEP's, so they are not here. FERRY_DEEPEP_CLONE names a clone of its repository, or a folder with what
`git archive` gives of the two commits, as v1 and v2.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator

import pytest
import torch

import deep_ep

CLONE = os.environ.get("FERRY_DEEPEP_CLONE", "")
COMMITS = {"v1": "567632d", "v2": "dd758ca"}
SMALL = os.environ.get("FERRY_DEEPEP_SIZE") == "small"

if torch.cuda.device_count() < 2:
    pytestmark = pytest.mark.skip(reason="no GPU was found for a second rank")
elif not CLONE:
    pytestmark = pytest.mark.skip(reason="FERRY_DEEPEP_CLONE names no clone of DeepEP")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """v1 and v2 as they are, and in `module` this deep_ep with those helpers of V2's test that it does not have."""
    made = tmp_path_factory.mktemp("deepep")
    for version, commit in COMMITS.items():
        given = pathlib.Path(CLONE) / version
        if given.is_dir():
            shutil.copytree(given, made / version)
        else:
            archive = subprocess.run(["git", "-C", CLONE, "archive", commit], check=True, capture_output=True).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
                tree.extractall(made / version, filter="data")
    ours = pathlib.Path(deep_ep.__file__).parent
    shutil.copytree(ours, made / "module" / "deep_ep")
    for helper in (made / "v2" / "deep_ep" / "utils").glob("*.py"):
        if not (ours / "utils" / helper.name).exists():
            shutil.copy(helper, made / "module" / "deep_ep" / "utils")
    yield made


def run(folder: pathlib.Path, file: str, *options: str) -> None:
    ferry_folder = pathlib.Path(importlib.util.find_spec("ferry").origin).parents[1]  # type: ignore[union-attr, arg-type]
    path = os.pathsep.join(map(str, (folder / "module", ferry_folder, folder / file.split("/")[0] / "tests")))
    environment = {name: value for name, value in os.environ.items() if name != "FERRY_DEEPEP_DEVICE"}
    done = subprocess.run([sys.executable, folder / file, "--num-processes", "2", *options], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, cwd=folder / file.split("/")[0],
                          env=environment | {"PYTHONPATH": path, "MASTER_PORT": "8361"})
    assert done.returncode == 0, done.stdout[-8000:]


def test_intranode(folder: pathlib.Path) -> None:
    run(folder, "v1/tests/test_intranode.py",
        *(("--num-tokens", "128", "--hidden", "2048", "--num-topk", "4", "--num-experts", "16") if SMALL else ()))


def test_low_latency(folder: pathlib.Path) -> None:
    run(folder, "v1/tests/test_low_latency.py",
        *(("--num-tokens", "37", "--hidden", "2048", "--num-topk", "4", "--num-experts", "12") if SMALL else ()))


def test_elastic(folder: pathlib.Path) -> None:
    """All cases small, and the first one large."""
    run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", "--num-tokens", "256", "--hidden", "2048")
    if not SMALL:
        run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", "--test-first-only")
