"""One rank of a test file that was written for GPUs, on CPUs: `on_cpus.py RANK FILE option...`, a process for each rank.

The file is not changed: "cuda" as a device means the CPU, what starts its processes runs its body here, and a gather
into a tensor of another shape is one that gloo takes.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


class CpuForGpu(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if given.get("device") == "cuda":
            given["device"] = "cpu"
        return function(*args, **given)


def main() -> None:
    rank, file, *options = sys.argv[1:]
    os.environ["FERRY_DEEPEP_DEVICE"] = "cpu"
    torch.set_num_threads(1)

    def run_here(body: Any, args: tuple[Any, ...], nprocs: int) -> None:
        with CpuForGpu():
            body(int(rank), *args)

    def gather(output: torch.Tensor, given: torch.Tensor, group: Any = None) -> None:
        dist.all_gather(list(output.view(-1, *given.shape)), given, group)

    torch.multiprocessing.spawn = run_here
    dist.all_gather_into_tensor = gather
    torch.cuda.synchronize = lambda *_: None
    sys.argv = [file, *options]
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    main()
