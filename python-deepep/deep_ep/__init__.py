"""DeepEP's Python interface on Ferry's exchanges. docs/deep-ep.md says what works."""

from . import buffers
from ._arguments import refused
from ._C import topk_idx_t
from ._config import Config
from ._ep_handle import EPHandle
from ._ranks import get_logical_domain_size, get_physical_domain_size
from .buffer import Buffer
from .elastic import ElasticBuffer
from .utils import EventHandle, EventOverlap, check_nvlink_connections

#: Of the DeepEP whose interface this is: callers look at it.
__version__ = "2.1.0+ferry"

_WHY = "deep_ep on Ferry compiles nothing when a program runs, and has no NCCL"
check_nccl_so, find_cuda_home, init_jit = (
    refused(f"deep_ep.{name}", _WHY) for name in ("check_nccl_so", "find_cuda_home", "init_jit"))

__all__ = ["Buffer", "Config", "EPHandle", "ElasticBuffer", "EventHandle", "EventOverlap", "__version__", "buffers",
           "check_nccl_so", "check_nvlink_connections", "find_cuda_home", "get_logical_domain_size",
           "get_physical_domain_size", "init_jit", "topk_idx_t"]
