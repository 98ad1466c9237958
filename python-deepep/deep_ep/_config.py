"""Tuning values and buffer sizes that callers compute. Ferry allocates by shapes, so these are read, and little more."""

from __future__ import annotations

from ._arguments import require_at_least

_LINE = 128
_NODE_RANKS = 8
#: Of the sizes of an ElasticBuffer, in bytes.
BUFFER_ALIGNMENT = 1 << 21


def rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Config:
    """How many multiprocessors the calls of the normal mode may take, and chunk sizes, which Ferry has no use for."""

    def __init__(self, num_sms: int = 20, num_max_nvl_chunked_send_tokens: int = 6,
                 num_max_nvl_chunked_recv_tokens: int = 256, num_max_rdma_chunked_send_tokens: int = 6,
                 num_max_rdma_chunked_recv_tokens: int = 256) -> None:
        require_at_least(0, num_sms=num_sms)
        self.num_sms = num_sms
        self.num_max_nvl_chunked_send_tokens = num_max_nvl_chunked_send_tokens
        self.num_max_nvl_chunked_recv_tokens = num_max_nvl_chunked_recv_tokens
        self.num_max_rdma_chunked_send_tokens = num_max_rdma_chunked_send_tokens
        self.num_max_rdma_chunked_recv_tokens = num_max_rdma_chunked_recv_tokens

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """A number of bytes that grows with the arguments. Nothing is allocated by it."""
        near = min(num_ranks, _NODE_RANKS)
        return rounded_up(near * self.num_max_nvl_chunked_recv_tokens * (hidden_bytes + _LINE), _LINE)

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """As get_nvl_buffer_size_hint; 0 for ranks of one host."""
        hosts = num_ranks // _NODE_RANKS if num_ranks > _NODE_RANKS else 0
        return rounded_up(hosts * self.num_max_rdma_chunked_recv_tokens * (hidden_bytes + _LINE) * 2, _LINE)


def low_latency_size_hint(tokens: int, hidden: int, experts: int) -> int:
    """Bytes of what travels for each expert in a dispatch and a combine, twice over. Nothing is allocated by it."""
    message = 2 * hidden + rounded_up(hidden, _LINE) // _LINE * 4 + 16
    return rounded_up(4 * experts * tokens * message, _LINE)


def rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int) -> int:
    """low_latency_size_hint, of what callers give."""
    require_at_least(0, num_max_dispatch_tokens_per_rank=num_max_dispatch_tokens_per_rank, hidden=hidden,
                     num_ranks=num_ranks, num_experts=num_experts)
    return low_latency_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_experts)
