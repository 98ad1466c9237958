"""The benchmarks of ferry.torch run, and say what they promise. How long anything takes is not looked at."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[3] / "benchmarks"
SHAPE = ["--device", "cpu", "--hidden", "64", "--experts", "8", "--top-k", "2", "--tokens", "4", "--seconds", "0.01"]


def records_of(program, ranks, *options):
    launcher = [sys.executable] if ranks == 1 else [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run([*launcher, BENCHMARKS / f"{program}.py", *SHAPE, *options], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for record in records:
        assert record["benchmark"] == program and program in record["command"] and record["hardware"]
        assert (record["ranks"], record["n"], record["hidden"], record["device"]) == (ranks, 4, 64, "cpu")
    return records


@pytest.mark.parametrize("ranks", [1, 2])
def test_host_times_of_calls(ranks):
    paths = ["torch", "core", "Exchange", "torch.Exchange", "torch.dispatch", "graph"]
    if importlib.util.find_spec("deep_ep"):
        paths.append("Buffer")
    thread = ["--own-thread"] if ranks == 1 else []
    records = records_of("torch_calls", ranks, *thread, *(word for path in paths for word in ("--path", path)))
    assert {record["path"] for record in records} == set(paths) - {"graph"}  # CPUs have none
    halves = [record["call"] for record in records if record["path"] == "torch.Exchange" and record["mode"] == "halves"]
    assert halves == ["dispatch_async", "dispatch_wait", "combine_async", "combine_wait"]
    assert {record["mode"] for record in records if record["path"] == "torch.dispatch"} == {"whole", "whole, recorded"}
    for record in records:
        assert 0 < record["host_us"]["min"] <= record["host_us"]["median"] <= record["host_us"]["p90"]


@pytest.mark.parametrize("rows", ["most", "exact"])
def test_parts_of_a_layer(rows):
    records = records_of("moe_layer", 2, "--inter", "32", "--rows", rows, "--format", "bf16,fp8_block128")
    assert [record["format"] for record in records] == ["bf16", "fp8_block128"]
    for record in records:
        assert set(record["us"]) == {"router", "dispatch", "matmuls", "combine", "exchange", "layer"}
        assert min(record["us"].values()) > 0 and 0 < record["rows_of_rank_0"] <= 2 * 4 * 2 + 8 * 4
