"""One rank of a test file that wants a GPU for each rank, where there are fewer: `without_gpus.py cpu|cuda RANK FILE option...`.

A process for each rank. They are CPU ranks, or share the first GPU. The file is not changed: what starts its processes
runs its body here, each device is the one that there is, and gloo stands for NCCL, which takes no GPU twice.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


class CpuForGpu(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if given.get("device") == "cuda":
            given["device"] = "cpu"
        return function(*args, **given)


def gather(output: torch.Tensor, given: torch.Tensor, group: Any = None) -> None:
    """A gather into a tensor of any shape, as NCCL takes it."""
    dist.all_gather(list(output.view(-1, *given.shape)), given, group)


def for_gloo(tensor: torch.Tensor) -> torch.Tensor:
    """gloo knows no numbers of one byte but integers."""
    return tensor.view(torch.uint8) if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def by_the_host(collective: Callable[..., Any]) -> Callable[..., Any]:
    """The collective with tensors, also of a list, that come to the host and go back."""

    @functools.wraps(collective)
    def call(*args: Any, **kwargs: Any) -> None:
        copies = [(tensor, for_gloo(tensor).cpu()) for arg in args for tensor in (arg if isinstance(arg, list) else [arg])
                  if isinstance(tensor, torch.Tensor)]
        here = {id(tensor): copy for tensor, copy in copies}
        collective(*([here[id(tensor)] for tensor in arg] if isinstance(arg, list) and arg and id(arg[0]) in here
                     else here.get(id(arg), arg) for arg in args), **kwargs)
        for tensor, copy in copies:
            for_gloo(tensor).copy_(copy)

    return call


def take_gloo() -> None:
    """NCCL's groups become gloo's. Collectives of tensors go by the host."""
    start = dist.init_process_group

    def init_process_group(backend: str = "gloo", *args: Any, device_id: Any = None, **kwargs: Any) -> None:
        start("gloo", *args, **kwargs)

    functools.update_wrapper(init_process_group, start)
    dist.init_process_group = init_process_group
    for name in ("all_reduce", "all_gather", "all_to_all_single", "broadcast"):
        setattr(dist, name, by_the_host(getattr(dist, name)))
    dist.all_gather_into_tensor = gather


def main() -> None:
    device, rank, file, *options = sys.argv[1:]

    def run_here(body: Any, args: tuple[Any, ...], nprocs: int) -> None:
        body(int(rank), *args)

    def run_on_cpus(body: Any, args: tuple[Any, ...], nprocs: int) -> None:
        with CpuForGpu():
            body(int(rank), *args)

    if device == "cpu":
        os.environ["FERRY_DEEPEP_DEVICE"] = "cpu"
        torch.set_num_threads(1)
        torch.cuda.synchronize, torch.cuda.set_device = lambda *_: None, lambda _: None  # torch.compile wants two
        torch.set_default_device = lambda _: None
    else:
        os.environ["FERRY_DEEPEP_SHARE_GPUS"] = "1"
        torch.cuda.set_device = functools.partial(lambda set_device, _: set_device(0), torch.cuda.set_device)
    take_gloo()
    torch.multiprocessing.spawn = run_on_cpus if device == "cpu" else run_here
    sys.argv = [file, *options]
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    main()
