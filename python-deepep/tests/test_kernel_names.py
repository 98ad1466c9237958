"""The names of kernels: DeepEP's test_low_latency.py looks in a profile for one with `dispatch` and one with `combine`."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sources():
    for folder in ("include", "src"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cuh", ".cu") or path.name.endswith(".cu.in"):
                yield path.read_text(encoding="utf-8")


def test_one_kernel_has_dispatch_in_its_name_and_one_combine():
    texts = list(sources())
    if not texts:
        pytest.skip("Ferry's sources are not beside this test")
    heads = [head for text in texts for head in re.findall(r"__global__ void ([^{;]*)\{", text)]
    names = [re.findall(r"(\w+)\(", head)[-1] for head in heads]
    assert len(names) > 30, names
    assert [name for name in names if "dispatch" in name] == ["dispatch_kernel"]
    assert [name for name in names if "combine" in name] == ["combine_kernel"]
