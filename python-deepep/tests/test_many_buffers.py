"""Nothing is left of buffers that were made, used and given up."""

import gc
import os
import pathlib
from typing import Any

import deep_ep
import torch
from launch import on_threads

IDS = torch.tensor([[0, 3], [2, 1], [1, 0]])
X = torch.ones((3, 512), dtype=torch.bfloat16)
WEIGHTS = torch.full((3, 2), 0.5)
ROUNDS, GROWTH = 100, 2048  # KiB: a buffer that stays takes more each time


def used(group: Any, rank: int, ranks: int, is_destroyed: bool) -> None:
    buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=is_destroyed)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(IDS, 4)
    rows, _, _, _, handle, _ = buffer.dispatch(X, topk_idx=IDS, topk_weights=WEIGHTS, is_token_in_rank=in_rank,
                                               num_tokens_per_expert=per_expert)
    assert buffer.combine(rows, handle)[0].shape == X.shape
    found, _, handle, _, _ = buffer.low_latency_dispatch(X, IDS, 3, 4, use_fp8=False)
    assert torch.equal(buffer.low_latency_combine(found, IDS, WEIGHTS, handle)[0], X)
    if is_destroyed:
        buffer.destroy()


def had() -> tuple[int, int]:
    maps = pathlib.Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("memfd:ferry")


def resident() -> int:
    """KiB."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_nothing_is_left_of_a_hundred_buffers() -> None:
    """Those that are destroyed, and those that are only let go."""
    for number in range(2 * ROUNDS):
        on_threads(2, used, number % 2 == 0)
        if number == ROUNDS - 1:  # caches are full
            gc.collect()
            before, memory = had(), resident()
    gc.collect()
    assert had() == before
    assert resident() - memory < GROWTH
