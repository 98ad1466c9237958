"""What programs import from DeepEP's compiled module by name."""

import torch

from ._arguments import refused
from ._config import BUFFER_ALIGNMENT, Config, rdma_size_hint
from ._runtime import ElasticRuntime as ElasticBuffer  # what `runtime` of a buffer is
from ._runtime import Runtime as Buffer
from .utils.event import EventHandle

__all__ = ["Buffer", "Config", "ElasticBuffer", "EventHandle", "calculate_elastic_buffer_size", "create_cpu_handle",
           "create_nccl_comm", "destroy_nccl_comm", "get_elastic_buffer_alignment", "get_local_nccl_unique_id",
           "get_logical_domain_size", "get_low_latency_rdma_size_hint", "get_physical_domain_size", "init_jit",
           "is_sm90_compiled", "topk_idx_t"]

#: The type of expert ids that callers cast theirs to. int32 ids are taken, too.
topk_idx_t = torch.int64

_NCCL = "deep_ep on Ferry has no communicators of NCCL"
calculate_elastic_buffer_size = refused("deep_ep._C.calculate_elastic_buffer_size", _NCCL)
create_nccl_comm = refused("deep_ep._C.create_nccl_comm", _NCCL)
destroy_nccl_comm = refused("deep_ep._C.destroy_nccl_comm", _NCCL)
get_local_nccl_unique_id = refused("deep_ep._C.get_local_nccl_unique_id", _NCCL)
get_logical_domain_size = refused("deep_ep._C.get_logical_domain_size", _NCCL)
get_physical_domain_size = refused("deep_ep._C.get_physical_domain_size", _NCCL)
create_cpu_handle = refused("deep_ep._C.create_cpu_handle", "deep_ep on Ferry has no memory of hosts to share")
init_jit = refused("deep_ep._C.init_jit", "deep_ep on Ferry compiles nothing when a program runs")


def is_sm90_compiled() -> bool:
    """Whether FP8 works: always."""
    return True


def get_elastic_buffer_alignment() -> int:
    return BUFFER_ALIGNMENT


def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int,
                                   num_experts: int) -> int:
    return rdma_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts)
