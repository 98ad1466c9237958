"""Ferry carries tokens to experts and back: dispatch and combine for expert-parallel Mixture-of-Experts layers.

run_ranks runs a function on ranks that are threads of this process. Exchange has the calls. docs/python.md teaches
both.
"""

from . import formats
from ._activation import swiglu
from ._arrays import Array
from ._arrivals import Arrivals, Handle
from ._errors import (Aborted, Error, FileRefused, InvalidArgument, OutOfOrder, PeerMissing, SystemRefused,
                      Unsupported)
from ._exchange import Exchange
from ._ferry import RowCounts, RowLayout, Shape, TensorSpec
from ._ferry import version as __version__
from ._info import build_info
from ._layout import exchange_layout, memory_use
from ._world import World, make_thread_worlds, run_ranks, run_worlds

__all__ = [
    "Aborted", "Array", "Arrivals", "Error", "Exchange", "FileRefused", "Handle", "InvalidArgument", "OutOfOrder",
    "PeerMissing", "RowCounts", "RowLayout", "Shape", "SystemRefused", "TensorSpec", "Unsupported", "World",
    "__version__", "build_info", "exchange_layout", "formats", "make_thread_worlds", "memory_use", "run_ranks",
    "run_worlds", "swiglu",
]
