"""Calls whose host waits for nothing, again and again with other tokens and other routes: on GPUs as a captured graph.
And what a GPU must survive."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable

import pytest
import torch

import deep_ep
import ferry
from launch import on_gpus, on_threads, why_no_gpus
from oracle import Case

Step = Callable[[], list[torch.Tensor]]
WHY_NOT = why_no_gpus()
ON_GPUS = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
CAPTURES = threading.Lock()  # ranks that are threads capture one after the other


class Inputs:
    """What a rank dispatches, at addresses that stay."""

    def __init__(self, world: ferry.World) -> None:
        self.world, self.rank = world, world.rank
        self.x, self.ids, self.weights = (tensor.to(world.device) for tensor in self.case(0).inputs(self.rank))

    def case(self, seed: int) -> Case:
        return Case(self.world.size, seed=seed, uneven=False)

    def take(self, seed: int) -> Case:
        case = self.case(seed)
        for here, given in zip((self.x, self.ids, self.weights), case.inputs(self.rank)):
            here.copy_(given)
        return case


def repeated(world: ferry.World, step: Step) -> Step:
    """The step, after a first time, which makes the exchanges. On a GPU a replay of its graph, and its results on the host."""
    step()
    if world.device == "cpu":
        return step
    stream = torch.cuda.current_stream()
    stream.synchronize()
    world.barrier()
    graph = torch.cuda.CUDAGraph()
    with CAPTURES, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        results = step()
    world.barrier()

    def again() -> list[torch.Tensor]:
        stream.synchronize()
        world.barrier()  # the inputs of all ranks are there
        graph.replay()
        stream.synchronize()
        found = [result.cpu() for result in results]
        world.barrier()
        return found

    return again


def ranks_of_tokens(case: Case, rank: int) -> torch.Tensor:
    return case.is_in_rank(rank).sum(1, keepdim=True)


def normal_step(buffer: deep_ep.Buffer, inputs: Inputs, is_async: bool) -> list[torch.Tensor]:
    x, ids, weights, experts = inputs.x, inputs.ids, inputs.weights, inputs.case(0).experts
    per_rank, _, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, experts, async_finish=is_async)
    event.current_stream_wait()
    rows, row_ids, row_weights, _, handle, event = buffer.dispatch(
        x, topk_idx=ids, topk_weights=weights, num_tokens_per_rank=per_rank, num_tokens_per_expert=per_expert,
        is_token_in_rank=in_rank, num_worst_tokens=x.shape[0] * inputs.world.size, async_finish=is_async)
    event.current_stream_wait()
    sums, home, event = buffer.combine(rows, handle, topk_weights=row_weights, async_finish=is_async)
    event.current_stream_wait()
    assert home is not None
    return [rows, row_ids, row_weights, sums, home]


def normal(world: ferry.World, *_: Any, is_async: bool) -> None:
    buffer, inputs = deep_ep.Buffer(world), Inputs(world)
    again = repeated(world, lambda: normal_step(buffer, inputs, is_async))
    for seed in (1, 2, 1):
        case = inputs.take(seed)
        rows, row_ids, row_weights, sums, home = again()
        given, chosen, factors = case.inputs(world.rank)
        came = len(case.rows(world.rank))
        assert torch.equal(rows[:came], case.of_rows(world.rank, [case.inputs(source)[0] for source in range(world.size)]))
        assert torch.equal(row_ids[:came], case.local_ids(world.rank)) and bool((row_ids[came:] == -1).all())
        assert torch.equal(row_weights[:came], case.weights_of_rows(world.rank))
        assert torch.equal(sums, given * ranks_of_tokens(case, world.rank))
        assert torch.equal(home, factors.masked_fill(chosen < 0, 0))


def graphs(world: ferry.World, *_: Any) -> None:
    """Captured one after the other, with eager calls between: a graph waits for nothing of another."""
    buffer, inputs = deep_ep.Buffer(world), Inputs(world)
    made = []
    for is_async in (True, False, True):
        made.append(repeated(world, functools.partial(normal_step, buffer, inputs, is_async)))
        normal_step(buffer, inputs, not is_async)
    for seed, again in enumerate((*made, *made)):
        inputs.take(seed)
        sums = again()[3]
        case = inputs.case(seed)
        assert torch.equal(sums.cpu(), case.inputs(world.rank)[0] * ranks_of_tokens(case, world.rank))


def low_latency(world: ferry.World, *_: Any, halved: bool) -> None:
    buffer, inputs = deep_ep.Buffer(world, low_latency_mode=True), Inputs(world)
    x, ids, weights, experts = inputs.x, inputs.ids, inputs.weights, inputs.case(0).experts

    def step() -> list[torch.Tensor]:
        found, counts, handle, _, hook = buffer.low_latency_dispatch(x, ids, 20, experts, use_fp8=False,
                                                                     return_recv_hook=halved)
        if hook is not None:
            hook()
        sums, _, hook = buffer.low_latency_combine(found.clone(), ids, weights, handle, return_recv_hook=halved)
        if hook is not None:
            hook()
        return [counts, sums]

    again = repeated(world, step)
    for seed in (1, 2, 1):
        case = inputs.take(seed)
        counts, sums = again()
        given, chosen, factors = case.inputs(world.rank)
        assert counts.tolist() == case.received(world.rank)
        expected = given.float() * factors.masked_fill(chosen < 0, 0).sum(1, keepdim=True)
        torch.testing.assert_close(sums.float(), expected, rtol=2**-6, atol=1e-2)


def bad_ids(world: ferry.World, *_: Any) -> None:
    """On a GPU an index that is out of bounds would end all of the process's work there."""
    buffer, inputs = deep_ep.Buffer(world), Inputs(world)
    experts = inputs.case(0).experts
    ids = inputs.ids.clone()
    ids[0, 0], ids[1, 1] = experts, 1 << 40
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, experts)
    kept = ids.cpu()[(ids.cpu() >= 0) & (ids.cpu() < experts)]
    assert torch.equal(per_expert.cpu(), torch.bincount(kept, minlength=experts).to(torch.int32))
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(inputs.ids, experts)
    assert torch.equal(in_rank.cpu(), inputs.case(0).is_in_rank(world.rank))


def elastic(world: ferry.World, *_: Any, do_expand: bool, alignment: int = 1) -> None:
    inputs = Inputs(world)
    x, ids, weights, experts = inputs.x, inputs.ids, inputs.weights, inputs.case(0).experts
    buffer = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=x.shape[0])

    def step() -> list[torch.Tensor]:
        found, _, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=experts, do_cpu_sync=False,
                                                 do_expand=do_expand, expert_alignment=alignment)
        sums, _, _ = buffer.combine(found, handle)
        return [handle.num_unaligned_recv_tokens_per_expert, sums]

    again = repeated(world, step)
    for seed in (1, 2, 1):
        case = inputs.take(seed)
        counts, sums = again()
        given, chosen, _ = case.inputs(world.rank)
        assert counts.tolist() == case.received(world.rank)
        times = (chosen >= 0).sum(1, keepdim=True) if do_expand else ranks_of_tokens(case, world.rank)
        torch.testing.assert_close(sums.float(), given.float() * times, rtol=2**-7, atol=1e-6)


def words_of(case: Case, rank: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(7 * case.seed + rank)
    return torch.randint(-(1 << 31), 1 << 31, (case.tokens, 4), generator=made).to(torch.int32)


def mxfp8(world: ferry.World, *_: Any) -> None:
    """Codes with a word for each 128 columns; of some the bits are a float32's that is no number."""
    buffer, inputs = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=20), Inputs(world)
    experts, codes = inputs.case(0).experts, inputs.x.view(torch.float8_e4m3fn)
    words = words_of(inputs.case(0), world.rank).to(world.device)

    def step() -> list[torch.Tensor]:
        (rows, scales), _, _, _, _ = buffer.dispatch((codes, words), inputs.ids, num_experts=experts, do_cpu_sync=False)
        return [rows.view(torch.uint8), scales]

    again = repeated(world, step)
    for seed in (1, 2, 1):
        case = inputs.take(seed)
        words.copy_(words_of(case, world.rank))
        rows, scales = again()
        came, ranks = len(case.rows(world.rank)), range(world.size)
        assert torch.equal(rows[:came], case.of_rows(world.rank, [case.inputs(one)[0].view(torch.uint8) for one in ranks]))
        assert torch.equal(scales[:came], case.of_rows(world.rank, [words_of(case, one) for one in ranks]))


def too_many_tokens(world: ferry.World, *_: Any, halved: bool) -> None:
    """All ranks refuse the dispatch; on GPUs one whose host did not wait says so by its next call, which does nothing."""
    buffer, case, most = deep_ep.Buffer(world, low_latency_mode=True), Case(world.size), 20

    def dispatch(tokens: int) -> list[int]:
        x = torch.ones(tokens, 256, dtype=torch.bfloat16, device=world.device)
        ids = torch.zeros(tokens, 1, dtype=torch.int64, device=world.device)
        _, counts, _, _, hook = buffer.low_latency_dispatch(x, ids, most, case.experts, return_recv_hook=halved)
        if hook is not None:
            hook()
        return [int(count) for count in counts.tolist()]

    assert sum(dispatch(2)) == (2 * world.size if world.rank == 0 else 0)
    for _ in range(2):
        with pytest.raises(ferry.InvalidArgument, match=rf"x of rank {world.size - 1} has 21 rows.* All ranks refuse"):
            dispatch(most + 1 if world.rank == world.size - 1 else 2)
            dispatch(2)
        world.barrier()
        assert sum(dispatch(2)) == (2 * world.size if world.rank == 0 else 0)


BODIES = [functools.partial(normal, is_async=is_async) for is_async in (False, True)]
BODIES += [functools.partial(low_latency, halved=halved) for halved in (False, True)]
BODIES += [functools.partial(elastic, do_expand=do_expand) for do_expand in (False, True)] + [functools.partial(bad_ids), functools.partial(graphs)]
BODIES += [functools.partial(too_many_tokens, halved=halved) for halved in (False, True)]
BODIES += [functools.partial(mxfp8), functools.partial(elastic, do_expand=True, alignment=40)]
EACH = pytest.mark.parametrize("body", BODIES, ids=lambda body: "-".join((body.func.__name__, *map(str, body.keywords.values()))))


@EACH
def test_steps_on_cpus(body: Callable[..., None]) -> None:
    on_threads(2, body)


@ON_GPUS
@EACH
def test_steps_on_gpus(body: Callable[..., None]) -> None:
    on_gpus(body)
