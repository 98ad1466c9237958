"""Ferry carries tokens to experts and back: dispatch and combine for expert-parallel Mixture-of-Experts layers.

run_ranks runs a function on ranks that are threads of this process. Exchange has the calls. docs/python.md teaches
both.
"""

from . import formats
from ._activation import swiglu
from ._all import combine_all, dispatch_all
from ._arrays import Array
from ._arrivals import Arrivals, Handle
from ._errors import (Aborted, Closed, Error, FileRefused, InvalidArgument, OutOfOrder, PeerMissing, SystemRefused,
                      Unsupported)
from ._exchange import Exchange
from ._ferry import RowCounts, RowLayout, Shape, TensorSpec
from ._ferry import version as __version__
from ._info import build_info, has_cuda
from ._layout import cuda_state_bytes, exchange_layout, memory_use
from ._trace import trace
from ._world import World, cuda_devices, cuda_worlds, make_thread_worlds, run_ranks, run_worlds

__all__ = [
    "Aborted", "Array", "Arrivals", "Closed", "Error", "Exchange", "FileRefused", "Handle", "InvalidArgument", "OutOfOrder",
    "PeerMissing", "RowCounts", "RowLayout", "Shape", "SystemRefused", "TensorSpec", "Unsupported", "World",
    "__version__", "build_info", "combine_all", "cuda_devices", "cuda_state_bytes", "cuda_worlds", "dispatch_all",
    "exchange_layout", "formats", "has_cuda", "make_thread_worlds", "memory_use", "run_ranks", "run_worlds", "swiglu",
    "trace",
]
