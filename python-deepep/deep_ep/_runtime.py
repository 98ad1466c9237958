"""`runtime` of a buffer: what callers ask of DeepEP's compiled object, which they find there."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._arguments import refused
from ._ranks import Ranks
from ._streams import Streams


class _Runtime:
    """`free` gives back what the buffer has made. It holds no buffer, so one that is let go is gone at once."""

    def __init__(self, ranks: Ranks, streams: Streams, free: Callable[[], None]) -> None:
        self._ranks, self._streams, self._free = ranks, streams, free

    def get_comm_stream(self) -> Any:
        return self._streams.comm()

    def destroy(self) -> None:
        """Local: it waits for nobody. Again: does nothing."""
        self._free()
        self._ranks.close()


class Runtime(_Runtime):
    """Of a Buffer: its ranks are those of one host."""

    def is_available(self) -> bool:
        return self._ranks.is_open

    def is_internode_available(self) -> bool:
        return False

    def get_num_rdma_ranks(self) -> int:
        return 1

    def get_rdma_rank(self) -> int:
        return 0

    def get_root_rdma_rank(self, is_global: bool) -> int:
        """The rank of each host that begins: by its number among all, or among those of this host's place."""
        return self._ranks.rank if is_global else 0

    def get_local_device_id(self) -> int:
        return self._ranks.device.index or 0

    def get_local_buffer_tensor(self, dtype: torch.dtype, offset: int = 0, use_rdma_buffer: bool = False) -> torch.Tensor:
        """No memory: there is none that callers could fill, and nothing needs it."""
        return torch.empty(0, dtype=dtype, device=self._ranks.device)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Does nothing, as Buffer's."""


class ElasticRuntime(_Runtime):
    """Of an ElasticBuffer."""

    def get_physical_domain_size(self) -> tuple[int, int]:
        """(hosts, ranks of a host)"""
        return 1, self._ranks.size

    def get_logical_domain_size(self) -> tuple[int, int]:
        return 1, self._ranks.size

    def barrier(self, use_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True) -> None:
        """Collective: what all ranks had enqueued is done when it returns. The host waits."""
        self._ranks.require_open()
        if self._ranks.is_gpu:
            torch.cuda.synchronize(self._ranks.device)
        self._ranks.world.barrier(deadline=self._ranks.deadline)


_CALLS = ("get_dispatch_layout", "intranode_dispatch", "intranode_combine", "internode_dispatch", "internode_combine",
          "low_latency_dispatch", "low_latency_combine", "low_latency_update_mask_buffer", "low_latency_query_mask_buffer",
          "low_latency_clean_mask_buffer", "get_next_low_latency_combine_buffer")
_SET_UP = ("sync", "get_local_ipc_handle", "get_local_nvshmem_unique_id")
#: Of ElasticBuffer and of its runtime.
NOT_ABOUT_EXPERTS = ("engram_write", "engram_fetch", "pp_set_config", "pp_send", "pp_recv", "create_agrs_session",
                     "destroy_agrs_session", "agrs_set_config", "agrs_get_inplace_tensor", "all_gather")
WHY_NOT = "deep_ep on Ferry has what is about experts only"


def _refuse(owner: type[_Runtime], of: str, names: tuple[str, ...], why: str) -> None:
    for name in names:
        setattr(owner, name, staticmethod(refused(f"{of}.runtime.{name}", why)))


_refuse(Runtime, "Buffer", _CALLS, "call the method of the buffer")
_refuse(Runtime, "Buffer", _SET_UP, "the ranks have met when the buffer is made, by Ferry's means")
_refuse(ElasticRuntime, "ElasticBuffer", ("dispatch", "combine"), "call the method of the buffer")
_refuse(ElasticRuntime, "ElasticBuffer", NOT_ABOUT_EXPERTS, WHY_NOT)
