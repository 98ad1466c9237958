"""trace: a file of what the exchanges of this process do, for Perfetto."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator

from . import _ferry
from ._arguments import require


@contextlib.contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Records every call of every exchange of this process, on any thread, and writes them to the file at the end.

        with ferry.trace("trace.json"):
            ferry.run_ranks(4, body)

    ui.perfetto.dev opens the file; docs/trace.md says what is in it. On a GPU synchronise the streams before the end:
    kernels that have not run by then are left out. Of ranks that are processes each gives a file of its own. The file
    is written also where an exception ends the block; it is opened first, so that a path that cannot be written raises
    OSError at once. One trace of a process records at a time: raises OutOfOrder.
    """
    require("path", path, isinstance(path, (str, os.PathLike)), "text or a pathlib.Path")
    recorded = _ferry.Trace()
    try:
        with open(path, "w", encoding="utf-8") as file:
            try:
                yield
            finally:
                recorded.stop()
                file.write(recorded.json())
    finally:
        recorded.stop()
