"""How long calls and kernels take."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

_FLUSH_BYTES = 1 << 28
_HEAD_START = 8  # flushes that a GPU does while the host enqueues what is measured


def flush_l2_cache(enabled: bool = True) -> None:
    """Writes more than a GPU's cache holds."""
    if enabled and torch.cuda.is_available():
        torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda").zero_()


def bench(fn: Callable[[], Any], num_warmups: int = 50, num_tests: int = 50, post_fn: Callable[[], Any] | None = None,
          flush_l2: bool = True) -> tuple[float, float, float]:
    """Mean, least and most seconds of a call on the current stream, or of the host where there is no GPU. `post_fn` runs
    behind each call that is measured, and is not."""
    for _ in range(num_warmups):
        fn()
    marks = []
    for _ in range(num_tests):
        flush_l2_cache(flush_l2)
        begin = _Mark()
        fn()
        marks.append((begin, _Mark()))
        if post_fn is not None:
            post_fn()
    _wait_for_gpu()
    taken = [end.seconds_since(begin) for begin, end in marks]
    return sum(taken) / len(taken), min(taken), max(taken)


class _Mark:
    """A point in the current stream, or in the host's time where there is no GPU."""

    def __init__(self) -> None:
        self._time = time.perf_counter()
        self._event: Any = None
        if torch.cuda.is_available():
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._event.record()

    def seconds_since(self, begin: _Mark) -> float:
        if self._event is None:
            return self._time - begin._time
        return float(begin._event.elapsed_time(self._event)) / 1e3


def empty_suppress() -> contextlib.AbstractContextManager[None]:
    """For what may be printed, in place of suppress_stdout_stderr."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def suppress_stdout_stderr() -> Iterator[None]:
    """Nothing is printed, by other languages neither."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        try:
            for number, _ in kept:
                os.dup2(nowhere.fileno(), number)
            yield
        finally:
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)


def bench_kineto(fn: Callable[[], Any], kernel_names: str | Sequence[str], num_tests: int = 30,
                 suppress_kineto_output: bool = False, trace_path: str | None = None, flush_l2: bool = True,
                 barrier_comm_profiling: bool = False, num_kernels_per_period: int = 1,
                 barrier: Callable[[], Any] | None = None) -> Any:
    """Mean seconds of a GPU's kernels, by torch's profiler.

    kernel_names            words in a kernel's name; for one that no kernel has the result is nan, and the kernels that
                            ran are printed
    num_kernels_per_period  above 1: a call launches so many of a name, and the result is a list, one for each launch
    barrier_comm_profiling  ranks begin each call together, by `barrier` or an all-reduce
    trace_path              where to keep the profiler's trace

    Returns one result for a name, or a tuple for several.
    """
    names = [kernel_names] if isinstance(kernel_names, str) else list(kernel_names)
    quiet: Any = suppress_stdout_stderr() if suppress_kineto_output else empty_suppress()
    activity = torch.profiler.ProfilerActivity
    with tempfile.TemporaryDirectory() as folder:
        path = trace_path or os.path.join(folder, "trace.json")
        with quiet:
            fn()  # not measured: it makes what only the first call makes
            _wait_for_gpu()
            with torch.profiler.profile(activities=[activity.CUDA if torch.cuda.is_available() else activity.CPU]) as profiler:
                for _ in range(num_tests):
                    flush_l2_cache(flush_l2)
                    if barrier_comm_profiling:
                        _line_up(barrier)
                    fn()
                _wait_for_gpu()
            profiler.export_chrome_trace(path)
        events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    found = tuple(_seconds(kernels, name, num_kernels_per_period) for name in names)
    return found[0] if isinstance(kernel_names, str) else found


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _line_up(barrier: Callable[[], Any] | None) -> None:
    if barrier is not None:
        barrier()
        return
    for _ in range(_HEAD_START):
        flush_l2_cache()
    dist.all_reduce(torch.ones(1, dtype=torch.float32, device="cuda" if torch.cuda.is_available() else "cpu"))


def _seconds(kernels: list[dict[str, Any]], name: str, period: int) -> float | list[float]:
    """Of the kernels of a trace, in order: the mean of those with `name`, or of each of `period` in turn."""
    taken = [float(kernel["dur"]) / 1e6 for kernel in kernels if name in kernel["name"]]
    if not taken:
        print(f"no kernel is named {name}; these ran: {sorted({kernel['name'] for kernel in kernels})}", file=sys.stderr)
    elif len(taken) % period:
        raise ValueError(f"{len(taken)} kernels are named {name}; they must be a multiple of num_kernels_per_period = {period}")
    means = [sum(taken[first::period]) / len(taken[first::period]) if taken else float("nan") for first in range(period)]
    return means[0] if period == 1 else means
