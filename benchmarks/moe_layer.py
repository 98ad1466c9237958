#!/usr/bin/env python3
"""Times of ferry.torch.MoELayer and of its parts, forward, on all ranks at once. Prints JSON lines.

    torchrun --nproc-per-node 2 benchmarks/moe_layer.py                    # deepseek-v3's shape with 32 experts
    python benchmarks/moe_layer.py --device cpu --hidden 64 --inter 32 --experts 4 --top-k 2 --tokens 8

Each record is of one number of tokens: `us` has, of the slowest rank, the medians of
  router     the router alone
  dispatch   ferry.torch.dispatch, with room for --rows, or exactly as many rows as come
  matmuls    the two grouped matmuls and SwiGLU on the rows that came
  combine    ferry.torch.combine
  exchange   dispatch and combine, one after the other, without the rest
  layer      the whole layer
With --graphs each is captured in a CUDA graph: what the GPU takes, where the host of an eager call is slower than it.
`overlap_us` is by how much the layer is shorter than the sum of router, exchange and matmuls; below 0 it is longer.
"""

import argparse
import os
import statistics
import time

import ferry.torch
import torch
from torch_ranks import Ranks, graph_times, head_of, say


class Parts:
    """A layer and what each of its parts takes from the one before."""

    def __init__(self, ranks, given, tokens):
        self.exchange = ferry.torch.Exchange(
            ranks.world, experts=given.experts, top_k=given.top_k, max_tokens=tokens, hidden=given.hidden,
            format=given.format, backward="bf16" if given.format == "bf16" else None, expert_alignment=8)
        rows = self.exchange.most_rows() if given.rows == "most" else None
        kind = torch.bfloat16 if ranks.device.type == "cuda" else torch.float32
        torch.manual_seed(1)  # the same router on all ranks
        self.layer = ferry.torch.MoELayer(self.exchange, given.inter, rows=rows, dtype=kind)
        made = torch.Generator().manual_seed(7 + ranks.rank)
        self.tokens = torch.randn((tokens, given.hidden), generator=made).to(ranks.device, kind)
        self.ids, self.weights = self.layer.router(self.tokens)
        self.arrived = self.dispatch()
        self.results = self.layer.experts(self.arrived)
        self.combine()

    def router(self):
        self.layer.router(self.tokens)

    def dispatch(self):
        return ferry.torch.dispatch(self.exchange, self.tokens, self.ids, self.weights, rows=self.layer.rows,
                                    dtype=self.layer.gate_up.dtype)

    def matmuls(self):
        self.layer.experts(self.arrived)

    def combine(self):
        ferry.torch.combine(self.exchange, self.results, self.arrived)

    def both(self):
        self.dispatch()
        self.combine()

    def whole(self):
        self.layer(self.tokens)

    def all(self):
        return {"router": self.router, "dispatch": self.dispatch, "matmuls": self.matmuls, "combine": self.combine,
                "exchange": self.both, "layer": self.whole}


def microseconds(ranks, part, seconds):
    """What the part takes on this rank, once per value, when all ranks begin it together."""
    on_gpu = ranks.device.type == "cuda"
    times, end, warm_ups, go_on = [], time.monotonic() + seconds, 5, True
    while go_on:
        ranks.meet()
        if on_gpu:
            begin, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            part()
            done.record()
            done.synchronize()
            taken = begin.elapsed_time(done) * 1000
        else:
            start = time.perf_counter()
            part()
            taken = (time.perf_counter() - start) * 1e6
        times.append(taken)
        go_on = all(each == b"1" for each in ranks.world.all_gather(b"1" if time.monotonic() < end else b"0")
                    ) or len(times) < warm_ups + 5
    return ranks.slowest(times[warm_ups:])


def measure(ranks, given, tokens):
    parts = Parts(ranks, given, tokens)
    times = {name: ranks.slowest(graph_times(ranks, part, 10)) if given.graphs else microseconds(ranks, part, given.seconds)
             for name, part in parts.all().items()}
    medians = {name: round(statistics.median(of), 2) for name, of in times.items()}
    rows = int(parts.arrived.row_offsets[-1])
    shape = {"hidden": given.hidden, "inter": given.inter, "experts": given.experts, "top_k": given.top_k}
    say(ranks, {
        "benchmark": "moe_layer", **head_of(ranks, "benchmarks/moe_layer.py", shape, tokens), "format": given.format,
        "rows_of_rank_0": rows, "room": given.rows, "graphs": given.graphs, "us": medians,
        "measured": {name: len(of) for name, of in times.items()},
        "overlap_us": round(medians["router"] + medians["exchange"] + medians["matmuls"] - medians["layer"], 2),
        "tflops_of_rank_0": round(6 * rows * given.hidden * given.inter / medians["matmuls"] / 1e6, 2)})
    parts.exchange.close()
    ranks.meet()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens", default="128,4096", help="of each rank, a list")
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--inter", type=int, default=2048)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--format", default="bf16,fp8_block128", help="of the tokens, a list")
    parser.add_argument("--rows", choices=("exact", "most"), default="most",
                        help="exact: the host waits for the number of rows in each dispatch")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    given = parser.parse_args()
    if given.graphs and (given.device == "cpu" or given.rows == "exact"):
        parser.error("--graphs is for GPUs, and for --rows most: no graph can wait for a number of rows")
    ranks = Ranks(given.device)
    torch.set_num_threads(max(1, os.cpu_count() // ranks.size))
    formats = given.format.split(",")
    with torch.no_grad():
        for given.format in formats:
            for tokens in map(int, given.tokens.split(",")):
                measure(ranks, given, tokens)
    ranks.close()


if __name__ == "__main__":
    main()
