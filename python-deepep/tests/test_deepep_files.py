"""DeepEP's own test files, unchanged, with this module in its place: processes with a GPU each, with one that they
share, where small shapes are enough, or on CPUs.

They are DeepEP's, so they are not here. FERRY_DEEPEP_CLONE names a clone of its repository, or a folder with what
`git archive` gives of the two commits, as v1 and v2. The helpers that V2's files import are those of this module, or
once more DeepEP's, so that both oracles look at the same buffers.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import io
import operator
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator

import pytest
import torch

import deep_ep
from launch import free_port

CLONE = os.environ.get("FERRY_DEEPEP_CLONE", "")
COMMITS = {"v1": "567632d", "v2": "dd758ca"}
HELPERS = ("math", "gate", "envs", "refs", "testing")
GPUS = torch.cuda.device_count()
SMALL = os.environ.get("FERRY_DEEPEP_SIZE") == "small" or GPUS < 2
SMALL_NORMAL = ("--num-tokens", "128", "--hidden", "2048", "--num-topk", "4", "--num-experts", "16")
SMALL_LOW_LATENCY = ("--num-tokens", "37", "--hidden", "2048", "--num-topk", "4", "--num-experts", "12")
TINY = ("--num-tokens", "16", "--hidden", "256", "--num-topk", "4", "--num-experts", "12")

pytestmark = pytest.mark.skipif(not CLONE, reason="FERRY_DEEPEP_CLONE names no clone of DeepEP")
ON_GPUS = pytest.mark.skipif(not GPUS, reason="no GPU was found")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """v1 and v2 as they are, this deep_ep in `ours`, and in `theirs` with the helpers of V2."""
    made = tmp_path_factory.mktemp("deepep")
    for version, commit in COMMITS.items():
        given = pathlib.Path(CLONE) / version
        if given.is_dir():
            shutil.copytree(given, made / version)
        else:
            archive = subprocess.run(["git", "-C", CLONE, "archive", commit], check=True, capture_output=True).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
                tree.extractall(made / version, filter="data")
    for name in ("ours", "theirs"):
        shutil.copytree(pathlib.Path(deep_ep.__file__).parent, made / name / "deep_ep",
                        ignore=shutil.ignore_patterns("__pycache__"))
    for helper in HELPERS:
        shutil.copy(made / "v2" / "deep_ep" / "utils" / f"{helper}.py", made / "theirs" / "deep_ep" / "utils")
    return made


def run(folder: pathlib.Path, file: str, *options: str, module: str = "ours", cpus: int = 0) -> None:
    """The file by two ranks on GPUs, whose processes it starts where there are two; on CPUs by so many."""
    ferry_folder = pathlib.Path(importlib.util.find_spec("ferry").origin).parents[1]  # type: ignore[union-attr, arg-type]
    path = os.pathsep.join(map(str, (folder / module, ferry_folder, folder / file.split("/")[0] / "tests")))
    environment = {name: value for name, value in os.environ.items() if name != "FERRY_DEEPEP_DEVICE"}
    environment |= {"PYTHONPATH": path, "MASTER_PORT": free_port()}
    without_gpus = pathlib.Path(__file__).with_name("without_gpus.py")
    shared = "cpu" if cpus else "cuda" if GPUS < 2 else ""
    commands = [[without_gpus, shared, str(rank)] for rank in range(cpus or 2)] if shared else [[]]
    with tempfile.TemporaryFile("w+") as said:
        started = [subprocess.Popen([sys.executable, *command, folder / file, "--num-processes", str(cpus or 2), *options],
                                    stdout=said, stderr=subprocess.STDOUT, cwd=folder / file.split("/")[0],
                                    env=environment) for command in commands]
        try:
            codes = [one.wait(timeout=280) for one in started]
        finally:
            for one in started:
                one.kill()
        said.seek(0)
        assert not any(codes), said.read()[-16000:]


@ON_GPUS
def test_intranode(folder: pathlib.Path) -> None:
    run(folder, "v1/tests/test_intranode.py", *(SMALL_NORMAL if SMALL else ()))


@ON_GPUS
def test_low_latency(folder: pathlib.Path) -> None:
    run(folder, "v1/tests/test_low_latency.py", *(SMALL_LOW_LATENCY if SMALL else ()))


@ON_GPUS
def test_elastic(folder: pathlib.Path) -> None:
    """All cases small, and the first one large, with what measures it."""
    run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", "--num-tokens", "256", "--hidden", "2048")
    if not SMALL:
        run(folder, "v2/tests/elastic/test_ep.py", "--test-first-only")


@ON_GPUS
def test_elastic_by_deepeps_oracle(folder: pathlib.Path) -> None:
    run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", "--num-tokens", "256", "--hidden", "2048",
        module="theirs")
    if not SMALL:
        run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", "--test-first-only", module="theirs")


@ON_GPUS
@pytest.mark.parametrize("short_handles", ["0", "1"])
def test_elastic_where_every_row_travels(folder: pathlib.Path, short_handles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_DEEPEP_SHORT_HANDLES", short_handles)
    run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", "--num-tokens", "256", "--hidden", "2048",
        "--allow-multiple-reduction", "0")


@ON_GPUS
def test_v2s_copies_of_v1s_files(folder: pathlib.Path) -> None:
    run(folder, "v2/tests/legacy/test_intranode.py", *SMALL_NORMAL)
    run(folder, "v2/tests/legacy/test_low_latency.py", *SMALL_LOW_LATENCY)


@pytest.mark.parametrize("ranks, options", [
    (2, ()), (2, ("--masked-ratio", "0.3", "--deterministic", "--unbalanced-ratio", "1.5")),
    (3, ("--masked-ratio", "0.2", "--test-first-only")),
    (3, ("--masked-ratio", "0.3", "--allow-multiple-reduction", "0", "--do-cpu-sync", "0", "--unbalanced-ratio", "1.5",
         "--precise-unbalanced-ratio"))])
def test_elastic_on_cpus(folder: pathlib.Path, ranks: int, options: tuple[str, ...]) -> None:
    run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", *TINY, *options, cpus=ranks)


def test_elastic_by_deepeps_oracle_on_cpus(folder: pathlib.Path) -> None:
    run(folder, "v2/tests/elastic/test_ep.py", "--skip-perf-test", *TINY, module="theirs", cpus=2)


@pytest.mark.parametrize("short_handles", ["0", "1"])
def test_intranode_on_cpus(folder: pathlib.Path, short_handles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_DEEPEP_SHORT_HANDLES", short_handles)
    run(folder, "v2/tests/legacy/test_intranode.py", *TINY, cpus=2)


def test_what_its_files_import_is_there(folder: pathlib.Path) -> None:
    looked_at = set()
    for version in COMMITS:
        for file in (folder / version / "tests").rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "deep_ep":
                    for name in node.names:
                        assert hasattr(importlib.import_module(str(node.module)), name.name), (node.module, name.name)
                        looked_at.add(name.name)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "deep_ep":
                    assert hasattr(deep_ep, node.attr), node.attr
                    looked_at.add(node.attr)
    assert {"ElasticBuffer", "Buffer", "get_unbalanced_scores", "bench_kineto", "get_rdma_gbs"} <= looked_at


def public_names(tree: ast.Module) -> Iterator[str]:
    """Functions, classes and methods of a file that have no underscore before them."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                yield f"{node.name}.{inner.name}"  # type: ignore[attr-defined]


def compiled_names(text: str) -> Iterator[str]:
    """What a C++ file binds."""
    owner = ""
    for kind, name in re.findall(r'(class_<[\w:]+>\(m|m\.def|m\.attr|^\s+\.def)\W+"(\w+)"', text, re.MULTILINE):
        owner = name if kind.startswith("class_") else owner
        yield f"{owner}.{name}" if kind.strip() == ".def" else name


def test_what_its_sources_have_by_a_public_name_is_there(folder: pathlib.Path) -> None:
    """As far as they are there: a folder may have the tests alone."""
    missing = []
    for version in COMMITS:
        named = [(".".join(file.relative_to(folder / version).with_suffix("").parts).removesuffix(".__init__"), name)
                 for file in (folder / version / "deep_ep").rglob("*.py") for name in public_names(ast.parse(file.read_text()))]
        named += [("deep_ep._C", name) for file in (folder / version / "csrc").rglob("*.[ch]pp")
                  for name in compiled_names(file.read_text())]
        for module, name in named:
            try:
                operator.attrgetter(name)(importlib.import_module(module))
            except (ImportError, AttributeError):
                missing.append(f"{module}.{name}")
    assert set(missing) <= {"deep_ep.utils.comm.NCCLCommHandle.get"}
