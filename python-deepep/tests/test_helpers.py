"""deep_ep.utils.{math, gate, envs, testing, semantic}: what programs that measure and test take from DeepEP."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist

from deep_ep.utils import envs, gate, semantic, testing
from deep_ep.utils import math as numbers
from launch import free_port
from oracle import decoded, encoded, packed


def test_whole_numbers() -> None:
    for x in range(50):
        for y in range(1, 12):
            assert numbers.ceil_div(x, y) == math.ceil(x / y) and numbers.align(x, y) == math.ceil(x / y) * y
    assert (numbers.safe_div(3, 2), numbers.safe_div(0, 5), numbers.safe_div(0, 0)) == (1.5, 0, 0)
    with pytest.raises(ZeroDivisionError):
        numbers.safe_div(3, 0)


def test_bytes_of_tensors_at_any_depth() -> None:
    x = torch.zeros((3, 4), dtype=torch.bfloat16)
    assert numbers.count_bytes() == 0
    assert numbers.count_bytes(x, None, (x.float(), [x.to(torch.float8_e4m3fn), None])) == 24 + 48 + 12


def test_differences() -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert numbers.calc_diff(x, x) == numbers.calc_diff(x[:0], x[:0]) == 0
    assert numbers.calc_diff(x, y) == pytest.approx(1 / 13)  # of x + 1 and y + 1: 1 - 2 * 12 / 26
    assert numbers.calc_diff(x, x * (1 + 2**-6)) < 1e-3


@pytest.mark.parametrize("rows, columns", [(5, 512), (0, 256), (3, 200), (1, 128)])
def test_fp8_and_back(rows: int, columns: int) -> None:
    made = torch.Generator().manual_seed(rows)
    x = torch.randn((rows, columns), generator=made).to(torch.bfloat16)
    codes, scales = numbers.per_token_cast_to_fp8(x)
    assert codes.shape == x.shape and codes.dtype == torch.float8_e4m3fn and codes.is_contiguous()
    assert scales.shape == (rows, math.ceil(columns / 128)) and scales.dtype == torch.float32
    back = numbers.per_token_cast_back(codes, scales)
    assert back.dtype == torch.bfloat16 and bool(((back - x).abs() <= x.abs() * 2**-3 + 1e-2).all())
    if columns % 128 == 0:
        assert torch.equal(scales, encoded(x)[1])
        assert torch.equal(back, decoded(codes, scales).to(torch.bfloat16))
    by_column = torch.empty_strided(scales.shape, (1, 8)).copy_(scales)
    assert torch.equal(numbers.per_token_cast_back(codes, by_column), back)


def test_packed_scales_at_any_strides_and_in_other_rows() -> None:
    codes, scales = encoded(torch.randn((8, 1024), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16), True)
    words = packed(scales)
    expected = decoded(codes, scales).to(torch.bfloat16)
    by_column = torch.empty_strided(words.shape, (1, 8), dtype=torch.int32).copy_(words)
    for given in (words, by_column, words.view(2, 8)):
        assert torch.equal(numbers.per_token_cast_back(codes, given), expected)
    one = torch.empty_strided((8, 1), (1, 8), dtype=torch.int32).copy_(packed(scales[:, :4]))
    assert torch.equal(numbers.per_token_cast_back(codes[:, :512], one), expected[:, :512])


def test_rows_of_different_values() -> None:
    x = torch.tensor([[3, 1, 3, -1], [0, 0, 0, 0], [-1, -1, -1, -1], [2, 0, 1, 5]])
    assert numbers.inplace_unique(x, 6) is None
    assert x.tolist() == [[3, 1, -1, -1], [0, -1, -1, -1], [-1, -1, -1, -1], [5, 2, 1, 0]]
    x = torch.tensor([[1, 1, 0, -1]], dtype=torch.int32)
    numbers.inplace_unique(x, 2)
    assert x.dtype == torch.int32 and x.tolist() == [[1, 0, -1, -1]]


def test_scores_of_groups() -> None:
    scores = torch.arange(1.0, 13.0).view(2, 6)
    found = numbers.create_grouped_scores(scores, torch.tensor([[0, 0], [2, 1]]), 3)
    assert found.tolist() == [[1, 2, 0, 0, 0, 0], [0, 0, 9, 10, 11, 12]]


def test_hashes() -> None:
    x = torch.randn((6, 4), generator=torch.Generator().manual_seed(1))
    expected = sum(int.from_bytes(x.numpy().tobytes()[at:at + 4], "little", signed=True) for at in range(0, 96, 4))
    assert numbers.hash_tensor(x) == numbers.hash_tensor(x.t()) == expected
    assert numbers.hash_tensor(torch.tensor([1, 2, 3, 4, 5], dtype=torch.uint8)) == 0x04030201 + 5
    assert numbers.hash_tensor(x[:0]) == numbers.hash_tensors() == 0
    assert numbers.hash_tensors(x, x[1:]) == expected ^ numbers.hash_tensor(x[1:])


def tokens_of_ranks(scores: torch.Tensor, top_k: int, ranks: int) -> torch.Tensor:
    ids = scores.topk(top_k, dim=1).indices
    local = scores.shape[1] // ranks
    assert all(len(set(row)) == top_k for row in ids.tolist()[:16])
    return torch.stack([(ids // local == rank).any(1).sum() for rank in range(ranks)]).float()


@pytest.mark.parametrize("ranks, local, top_k, ratio", [
    (1, 4, 2, 1.0), (2, 1, 1, 1.0), (2, 1, 2, 1.0), (2, 8, 6, 1.0), (4, 8, 1, 4.0), (8, 8, 8, 2.0), (8, 4, 8, 4.0),
    (72, 1, 9, 4.0), (64, 8, 8, 2.0), (3, 2, 4, 1.5), (4, 4, 4, 0.5)])
def test_precise_scores_have_the_ratio(ranks: int, local: int, top_k: int, ratio: float) -> None:
    torch.manual_seed(ranks * top_k)
    scores = gate.get_unbalanced_scores(2048, ranks * local, ranks, top_k, ratio, True)
    assert scores.shape == (2048, ranks * local) and scores.dtype == torch.float32 and bool((scores > 0).all())
    tokens = tokens_of_ranks(scores, top_k, ranks)
    if ranks > 1:
        assert float(tokens[1:].max() - tokens[1:].min()) <= 1  # the other ranks have as many, to a token
        assert float(tokens[0] / tokens[1:].mean()) == pytest.approx(ratio, rel=0.02)


def test_precise_scores_use_all_experts_alike() -> None:
    torch.manual_seed(5)
    ids = gate.get_unbalanced_scores(4096, 64, 8, 6, 1.0, True).topk(6, dim=1).indices
    counts = torch.bincount(ids.flatten(), minlength=64).float()
    assert float(counts.min()) > 0.8 * float(counts.mean()) and float(counts.max()) < 1.2 * float(counts.mean())


def test_a_ratio_that_no_tokens_have() -> None:
    with pytest.raises(ValueError, match=r"ratio is 4\.0; with top-4 of 4 experts on 4 ranks"):
        gate.get_unbalanced_scores(64, 4, 4, 4, 4.0, True)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0, 4.0])
def test_random_scores_have_about_the_ratio(ratio: float) -> None:
    torch.manual_seed(9)
    scores = gate.get_unbalanced_scores(4096, 64, 8, 6, ratio, False)
    assert scores.shape == (4096, 64) and scores.dtype == torch.float32 and bool((scores > 0).all())
    tokens = tokens_of_ranks(scores, 6, 8)
    assert float(tokens[0] / tokens[1:].mean()) == pytest.approx(ratio, rel=0.1)
    torch.manual_seed(9)  # the same once more, though the factor is known by now
    assert torch.equal(scores, gate.get_unbalanced_scores(4096, 64, 8, 6, ratio, False))


def test_no_tokens() -> None:
    for precise in (True, False):
        assert gate.get_unbalanced_scores(0, 16, 4, 2, 2.0, precise).shape == (0, 16)


def a_rank(rank: int, ranks: int, folder: str) -> None:
    assert envs.init_dist(rank, ranks, seed=7)[:2] == (rank, ranks)
    assert (dist.get_rank(), dist.get_world_size(), torch.get_default_dtype()) == (rank, ranks, torch.bfloat16)
    assert (envs.get_global_seed(), envs.get_local_seed()) == (7, 7 + rank)
    first = torch.rand(4), random.random()
    envs.init_seed(7)
    again = torch.rand(4), random.random()
    assert torch.equal(first[0], again[0]) and first[1] == again[1]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        envs.dist_print("from each")
        envs.dist_print("from the first", once_in_node=True)
    pathlib.Path(folder, str(rank)).write_text(json.dumps([said.getvalue(), first[0].tolist()]))
    dist.destroy_process_group()


def test_processes_become_ranks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", free_port())
    monkeypatch.setenv("FERRY_DEEPEP_DEVICE", "cpu")
    torch.multiprocessing.spawn(a_rank, (2, str(tmp_path)), nprocs=2)
    (first, numbers_of_first), (second, numbers_of_second) = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    assert first == "from each\nfrom the first\n" and second == "from each\n"
    assert numbers_of_first != numbers_of_second


def test_bandwidth_as_nvidia_smi_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
    ask = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *_, **more: ask([sys.executable, "-c", f"print({said!r})"], **more))
    envs.get_nvlink_gbs.cache_clear()
    assert envs.get_nvlink_gbs(0.5) == pytest.approx(26.562)
    envs.get_nvlink_gbs.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="times are those of the GPU")
def test_times_of_calls() -> None:
    calls: list[str] = []

    def fn() -> None:
        calls.append("fn")
        time.sleep(0.002)

    mean, least, most = testing.bench(fn, num_warmups=2, num_tests=3, post_fn=lambda: calls.append("post"))
    assert calls == ["fn"] * 2 + ["fn", "post"] * 3
    assert 0.002 <= least <= mean <= most


def test_kernels_of_a_trace() -> None:
    kernels = [{"name": f"void ferry::{name}<16>(Params)", "dur": took, "ts": at} for at, (name, took) in enumerate(
        [("dispatch", 1), ("dispatch", 10), ("combine", 5), ("dispatch", 3), ("dispatch", 30)])]
    seconds = testing._seconds
    assert seconds(kernels, "::combine", 1) == 5e-6
    assert seconds(kernels, "dispatch", 1) == pytest.approx(11e-6)
    assert seconds(kernels, "dispatch", 2) == pytest.approx([2e-6, 20e-6])
    with pytest.raises(ValueError, match="4 kernels are named dispatch"):
        seconds(kernels, "dispatch", 3)


def test_kernels_that_did_not_run(capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("kernels run")
    calls: list[None] = []
    found = testing.bench_kineto(lambda: calls.append(None), ("one", "two"), num_tests=2, suppress_kineto_output=True,
                                 trace_path=str(tmp_path / "trace.json"), barrier_comm_profiling=True, barrier=lambda: None)
    assert len(calls) == 3 and (tmp_path / "trace.json").is_file()
    assert all(math.isnan(one) for one in found) and "no kernel is named two" in capfd.readouterr().err
    assert math.isnan(testing.bench_kineto(lambda: None, "one", num_tests=1))
    pair = testing.bench_kineto(lambda: None, "one", num_tests=1, num_kernels_per_period=2)
    assert len(pair) == 2 and all(map(math.isnan, pair))


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def say(what: str) -> None:
        print(what, flush=True)
        os.write(1, what.encode())
        os.write(2, what.encode())

    with testing.suppress_stdout_stderr():
        say("hidden")
    with testing.empty_suppress():
        say("shown")
    said = capfd.readouterr()
    assert "hidden" not in said.out + said.err and said.out.count("shown") == 2 and said.err == "shown"


@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_dealt_ranks_and_experts(ratio: float) -> None:
    counts = gate.generate_rank_count(512, 32, 4, 6, ratio)
    assert counts.shape == (512, 4) and counts.dtype == torch.int32 and bool((counts.sum(1) == 6).all())
    tokens = (counts > 0).sum(0)
    assert abs(float(tokens[0]) - ratio * float(tokens[1:].float().mean())) <= ratio
    ids = gate.generate_topk_idx(counts, 512, 32, 4, 6)
    assert ids.shape == (512, 6) and ids.dtype == torch.int64
    assert all(len(set(token)) == 6 for token in ids.tolist())
    assert torch.equal(torch.nn.functional.one_hot(ids // 8, 4).sum(1), counts)
    assert len({tuple(sorted(token)) for token in ids[:64].tolist()}) > 16  # by chance


def test_values_that_may_be_left_out() -> None:
    assert [semantic.value_or(given, 3) for given in (None, 0, 4)] == [3, 0, 4]


def test_methods_that_remember() -> None:
    calls = []

    class Owner:
        @semantic.weak_lru(maxsize=2)
        def method(self, number: int, *, step: int = 1) -> int:
            """Counts."""
            calls.append((number, step))
            return number + step

    one, other = Owner(), Owner()
    assert [one.method(1), one.method(1), other.method(1), one.method(1, step=2), one.method(1, step=2)] == [2, 2, 2, 3, 3]
    assert calls == [(1, 1), (1, 1), (1, 2)] and Owner.method.__doc__ == "Counts."
    one.method(5)
    one.method(1)  # the third of two
    assert len(calls) == 5
    gone = weakref.ref(one)
    del one
    assert gone() is None


def test_whether_torch_fills_new_memory() -> None:
    envs.check_torch_deterministic()
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(AssertionError, match="fill_uninitialized_memory = False"):
            envs.check_torch_deterministic()
        torch.utils.deterministic.fill_uninitialized_memory = False
        envs.check_torch_deterministic()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)
