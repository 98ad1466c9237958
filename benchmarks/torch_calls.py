#!/usr/bin/env python3
"""What a call of ferry.torch costs the host that makes it, and a round in a CUDA graph. Prints JSON lines.

    torchrun --nproc-per-node 2 benchmarks/torch_calls.py                  # a GPU for each process
    python benchmarks/torch_calls.py --device cpu --hidden 64 --experts 8 --top-k 2

`host_us` is the time of one call on this thread, of rank 0: on a GPU kernels are only enqueued, on a CPU it is all of the
call. `path` says whose call it is:
  torch            torch's, of one small kernel: what a launch takes on this host
  core             the compiled module, whose arguments are at hand: what C++ takes, and the way into it
  Exchange         ferry.Exchange
  torch.Exchange   ferry.torch.Exchange, whole and in halves
  torch.dispatch   ferry.torch.dispatch and combine, and where autograd records them
  Buffer           deep_ep.Buffer, as DeepEP V1 is called: normal mode with num_worst_tokens, cached, and low-latency mode
  graph            rounds of torch.Exchange in a CUDA graph: `round_us` of the slowest rank. With --cuda-bench the record
                   has what that program measures of the same round, and the ratio
"""

import argparse
import contextlib
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import ferry
import ferry.torch
import torch
from torch_ranks import Ranks, graph_times, head_of, host_times, inputs_of, say, summary

PATHS = ("torch", "core", "Exchange", "torch.Exchange", "torch.dispatch", "Buffer", "graph")


def of_torch(ranks, *_):
    """[(name of the measurement, its calls)] and what is to be closed."""
    number = torch.zeros(1, device=ranks.device)
    return [("whole", [("add_", lambda: number.add_(1))])], contextlib.ExitStack()


def core(ranks, shape, given, options):
    x, ids, weights = inputs_of(ranks, shape, given.tokens)
    exchange = ferry.torch.Exchange(ranks.world, **shape, max_tokens=given.tokens, format=given.format, **options)
    outputs = exchange.allocate_outputs()
    rows = rows_of(exchange, shape)
    sums = torch.empty_like(x)
    plain = exchange._base._core
    stream = torch.cuda.current_stream().cuda_stream if ranks.device.type == "cuda" else 0
    inputs = {"tokens": x, "topk_ids": ids, "topk_weights": weights}
    return [("whole", [("dispatch", lambda: plain.dispatch(inputs, outputs, (None, stream, 0))),
                       ("combine", lambda: plain.combine({"rows": rows}, {"tokens": sums}, (None, stream, 0)))])], exchange


def rows_of(exchange, shape):
    return torch.zeros((exchange.most_rows(), shape["hidden"]), dtype=torch.bfloat16, device=exchange.device)


def of_exchange(ranks, shape, given, options, make=ferry.Exchange):
    x, ids, weights = inputs_of(ranks, shape, given.tokens)
    exchange = make(ranks.world, **shape, max_tokens=given.tokens, format=given.format, **options)
    like = {} if make is ferry.torch.Exchange or ranks.device.type == "cpu" else {"like": x}
    outputs = exchange.allocate_outputs(**like)
    capacity = exchange.layout.least_rows("by_expert", 0)
    rows = torch.zeros((capacity, shape["hidden"]), dtype=torch.bfloat16, device=ranks.device)
    sums = torch.empty_like(x)
    whole = [("dispatch", lambda: exchange.dispatch(x, ids, weights, outputs=outputs)),
             ("combine", lambda: exchange.combine(rows, out=sums))]
    allocating = [("dispatch", lambda: exchange.dispatch(x, ids, weights, row_capacity=capacity)),
                  ("combine", lambda: exchange.combine(rows, dtype="bf16" if make is ferry.Exchange else None))]
    halves = [("dispatch_async", lambda: exchange.dispatch_async(x, ids, weights)),
              ("dispatch_wait", lambda: exchange.dispatch_wait(outputs)),
              ("combine_async", lambda: exchange.combine_async(rows)),
              ("combine_wait", lambda: exchange.combine_wait(out=sums))]
    return [("whole", whole), ("whole, allocating", allocating), ("halves", halves)], exchange


def of_torch_exchange(ranks, shape, given, options):
    return of_exchange(ranks, shape, given, options, ferry.torch.Exchange)


def of_operators(ranks, shape, given, options):
    x, ids, weights = inputs_of(ranks, shape, given.tokens)
    exchange = ferry.torch.Exchange(ranks.world, **shape, max_tokens=given.tokens, format=given.format, backward="bf16",
                                    **options)
    results, kept = rows_of(exchange, shape), {}

    def calls(tokens, results):
        def dispatch():
            kept["arrived"] = ferry.torch.dispatch(exchange, tokens, ids, weights, rows=exchange.most_rows())

        return [("dispatch", dispatch), ("combine", lambda: ferry.torch.combine(exchange, results, kept["arrived"]))]

    return [("whole", calls(x, results)),
            ("whole, recorded", calls(x.clone().requires_grad_(), results.clone().requires_grad_()))], exchange


class BufferCalls:
    """deep_ep.Buffer with its own worlds."""

    def __init__(self, ranks, shape, given):
        import deep_ep
        self.buffer = deep_ep.Buffer(torch.distributed.group.WORLD if ranks.is_job else ranks.world,
                                     explicitly_destroy=True)
        self.x, ids, self.weights = inputs_of(ranks, shape, given.tokens)
        self.ids, self.experts, self.worst = ids.to(torch.int64), shape["experts"], given.tokens * ranks.size
        self.tokens, self.fp8 = given.tokens, given.format != "bf16"
        _, _, per_expert, in_rank, _ = self.buffer.get_dispatch_layout(self.ids, self.experts)
        self.where = {"is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert}

    def normal(self):
        rows, _, _, _, self.handle, _ = self.buffer.dispatch(self.x, topk_idx=self.ids, topk_weights=self.weights,
                                                             num_worst_tokens=self.worst, **self.where)
        self.rows = rows

    def cached(self):
        self.buffer.dispatch(self.x, handle=self.handle)

    def normal_combine(self):
        self.buffer.combine(self.rows, self.handle)

    def low_latency(self):
        found, _, self.handle, _, _ = self.buffer.low_latency_dispatch(self.x, self.ids, self.tokens, self.experts,
                                                                       use_fp8=self.fp8)
        codes = found[0] if self.fp8 else found
        if getattr(self, "results", None) is None:
            self.results = torch.zeros(codes.shape, dtype=torch.bfloat16, device=codes.device)

    def low_latency_combine(self):
        self.buffer.low_latency_combine(self.results, self.ids, self.weights, self.handle)

    def close(self):
        self.buffer.destroy()


def of_buffer(ranks, shape, given, _):
    calls = BufferCalls(ranks, shape, given)
    return [("normal", [("dispatch", calls.normal), ("cached dispatch", calls.cached),
                        ("combine", calls.normal_combine)]),
            ("low latency", [("dispatch", calls.low_latency), ("combine", calls.low_latency_combine)])], calls


MAKERS = {"torch": of_torch, "core": core, "Exchange": of_exchange, "torch.Exchange": of_torch_exchange,
          "torch.dispatch": of_operators, "Buffer": of_buffer}


def measure_hosts(ranks, path, shape, given, head):
    measurements, made = MAKERS[path](ranks, shape, given, {"deadline": 30.0})
    for mode, calls in measurements:
        with torch.set_grad_enabled("recorded" in mode):
            measured = host_times(ranks, calls, given.seconds)
        for name, times in measured.items():
            say(ranks, {**head, "path": path, "mode": mode, "call": name, "host_us": summary(times)})
    made.close()
    ranks.meet()


def measure_graph(ranks, shape, given, head):
    x, ids, weights = inputs_of(ranks, shape, given.tokens)
    with ferry.torch.Exchange(ranks.world, **shape, max_tokens=given.tokens, format=given.format) as exchange:
        outputs, rows, sums = exchange.allocate_outputs(), rows_of(exchange, shape), torch.empty_like(x)

        def a_round():
            exchange.dispatch(x, ids, weights, outputs=outputs)
            exchange.combine(rows, out=sums)

        times = ranks.slowest(graph_times(ranks, a_round, 40 if given.tokens <= 256 else 10))
    record = {**head, "path": "graph", "call": "round", "round_us": summary(times)}
    ranks.meet()
    if given.cuda_bench and ranks.rank == 0:
        command = [given.cuda_bench, "--speeds=none", *map(str, (ranks.size, shape["hidden"], shape["top_k"], shape["experts"])),
                   given.format, "0", str(given.tokens)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        record["cuda_bench"] = {"command": " ".join(command), **{name: found[name] for name in
                                ("pair_us", "host_dispatch_us", "host_combine_us")}}
        record["ratio_to_cuda_bench"] = round(record["round_us"]["median"] / found["pair_us"], 3)
    say(ranks, record)
    if ranks.is_job:
        torch.distributed.barrier()  # of gloo: the others wait for that program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens", type=int, default=128, help="of each rank")
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--format", default="fp8_block128")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--path", action="append", choices=PATHS, help="any number; all if there is none")
    parser.add_argument("--cuda-bench", metavar="PROGRAM", help="build/cuda/benchmarks/cuda_bench")
    parser.add_argument("--own-thread", action="store_true",
                        help="measure on a thread that is not the main one: CPU ranks hand calls of that to another")
    given = parser.parse_args()
    if given.own_thread:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(measure, given).result()
    else:
        measure(given)


def measure(given):
    torch.set_num_threads(1)
    ranks = Ranks(given.device)
    shape = {"hidden": given.hidden, "top_k": given.top_k, "experts": given.experts}
    head = {"benchmark": "torch_calls", **head_of(ranks, "benchmarks/torch_calls.py", shape, given.tokens),
            "format": given.format}
    with torch.no_grad():
        for path in given.path or PATHS:
            if path != "graph":
                measure_hosts(ranks, path, shape, given, head)
            elif given.device == "cuda":
                measure_graph(ranks, shape, given, head)
    ranks.close()


if __name__ == "__main__":
    main()
