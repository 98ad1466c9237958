"""What the benchmarks of ferry.torch share: this process's rank, inputs, times, and records as JSON lines."""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import ferry
import torch
import torch.distributed as dist

AT_ONCE = 20  # rounds that are enqueued before the host waits, so that no call waits for room in a queue
REPLAYS = 21


class Ranks:
    """This process's rank: of the processes that torchrun started, or the only one."""

    def __init__(self, device):
        self.is_job = "RANK" in os.environ
        self.device = torch.device(device)
        if device == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
            torch.cuda.set_device(self.device)
        if self.is_job:
            dist.init_process_group("gloo")  # no other kernels beside those that are measured
            self.world = ferry.World.from_all_gather(dist.get_rank(), dist.get_world_size(), self._all_gather,
                                                     device=str(self.device))
        else:
            (self.world,) = ferry.make_thread_worlds(1) if device == "cpu" else ferry.cuda_worlds(1)
        self.rank, self.size = self.world.rank, self.world.size

    @staticmethod
    def _all_gather(mine):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, mine)
        return parts

    def meet(self):
        """Returns when all ranks have come and their kernels are done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.world.barrier()

    def slowest(self, times):
        """For each measurement the time of the rank that took longest."""
        every = [json.loads(each) for each in self.world.all_gather(json.dumps(
            [round(time, 3) for time in times]).ljust(24 * len(times) + 8).encode())]
        return [max(of_all) for of_all in zip(*every)]

    def close(self):
        self.world.close()
        if self.is_job:
            dist.destroy_process_group()


def inputs_of(ranks, shape, tokens):
    """(tokens bf16, ids int32, weights) of this rank: distinct experts, drawn uniformly."""
    made = torch.Generator().manual_seed(1 + ranks.rank)
    x = torch.randn((tokens, shape["hidden"]), generator=made).to(torch.bfloat16)
    ids = torch.rand((tokens, shape["experts"]), generator=made).topk(shape["top_k"]).indices.to(torch.int32)
    weights = torch.full(ids.shape, 1 / shape["top_k"])
    return x.to(ranks.device), ids.to(ranks.device), weights.to(ranks.device)


def host_times(ranks, calls, seconds):
    """{name: microseconds of each call on this host thread} of [(name, function)], made in this order over and over."""
    times = {name: [] for name, _ in calls}
    clock = time.perf_counter_ns
    for warm_up in (True, False):
        begin, go_on = time.monotonic(), True
        while go_on:
            ranks.meet()
            for _ in range(AT_ONCE):
                for name, call in calls:
                    start = clock()
                    call()
                    times[name].append((clock() - start) / 1000)
            mine = time.monotonic() - begin < (min(0.3, seconds) if warm_up else seconds)
            go_on = all(each == b"1" for each in ranks.world.all_gather(b"1" if mine else b"0"))
        if warm_up:
            times = {name: [] for name in times}
    ranks.meet()
    return times


def graph_times(ranks, enqueue, chain):
    """Microseconds of `enqueue` on a GPU, `chain` of them in a CUDA graph: one value for each replay, on this rank."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        enqueue()
        ranks.meet()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(chain):
                enqueue()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = []
        for replay in range(-20, REPLAYS):
            ranks.meet()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if replay >= 0:
                times.append(begin.elapsed_time(end) * 1000 / chain)
    ranks.meet()
    return times


def summary(times):
    """Of microseconds."""
    ordered = sorted(times)
    return {"min": round(ordered[0], 2), "median": round(statistics.median(ordered), 2),
            "p90": round(ordered[len(ordered) * 9 // 10], 2), "measured": len(ordered)}


def processor():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit():
    try:
        return subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse", "--short", "HEAD"],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("FERRY_COMMIT", "")


def head_of(ranks, program, shape, tokens):
    """What every record begins with."""
    hardware = f"{os.cpu_count()} cores of {processor()}"
    if ranks.device.type == "cuda":
        hardware = f"{ranks.size} x {torch.cuda.get_device_name(ranks.device)}, {hardware}"
    launched = f"torchrun --nproc-per-node {ranks.size} " if ranks.is_job else ""
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "hardware": hardware,
            "command": f"{launched}{program} {' '.join(sys.argv[1:])}".strip(), "commit": commit(),
            "torch": torch.__version__, "device": ranks.device.type, "ranks": ranks.size, "n": tokens, **shape}


def say(ranks, record):
    if ranks.rank == 0:
        print(json.dumps(record), flush=True)
