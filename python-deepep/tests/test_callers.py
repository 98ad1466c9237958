"""What public callers import, and calls as they write them."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
import torch
import torch.distributed as dist

import deep_ep
import ferry
from launch import on_processes, on_threads
from test_errors import IDS, X, layout_of


@pytest.mark.parametrize("module, names", [
    ("deep_ep", ["Buffer", "Config", "ElasticBuffer", "EPHandle", "EventHandle", "EventOverlap", "topk_idx_t"]),
    ("deep_ep.buffers", ["Buffer", "EPHandle", "ElasticBuffer"]),
    ("deep_ep.buffers.elastic", ["ElasticBuffer", "EPHandle", "EventHandle", "EventOverlap"]),
    ("deep_ep.buffers.legacy", ["Buffer", "Config", "EventHandle", "EventOverlap"]),
    ("deep_ep.utils", ["EventHandle", "EventOverlap", "check_nvlink_connections"]),
    ("deep_ep.utils.event", ["EventHandle", "EventOverlap"]),
    ("deep_ep.utils.envs", ["check_nvlink_connections", "get_logical_domain_size", "get_physical_domain_size"]),
    ("deep_ep._C", ["Config", "EventHandle", "topk_idx_t"])])
def test_names_are_where_deepep_has_them(module: str, names: list[str]) -> None:
    for name in names:
        assert getattr(importlib.import_module(module), name) is getattr(deep_ep, name), name


def test_buffers_need_no_import_of_their_own() -> None:
    assert deep_ep.buffers.elastic.ElasticBuffer is deep_ep.buffers.ElasticBuffer is deep_ep.ElasticBuffer


def test_the_version_is_that_of_the_interface() -> None:
    assert re.fullmatch(r"2\.\d+\.\d+\+ferry", deep_ep.__version__)  # callers compare it with 2


def test_calls_of_an_elastic_buffer_as_callers_write_them() -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        assert deep_ep.ElasticBuffer.get_buffer_size_hint(world, 64, 256, 2) % (1 << 21) == 0
        for given in ({"num_cpu_bytes": 1 << 20}, {"shiny": True}):
            with pytest.raises(NotImplementedError, match=f"ElasticBuffer.{next(iter(given))}="):
                deep_ep.ElasticBuffer(world, **given)
        buffer = deep_ep.ElasticBuffer(world, 1 << 21, 0, 4)
        assert buffer.get_theoretical_num_sms(8, 2, 0, 0.0, 400.0) == buffer.get_theoretical_num_sms(8, 2)
        with buffer.agrs_new_session(enabled=False):
            found, _, _, handle, _ = buffer.dispatch(X, IDS, num_experts=4, num_allocated_bytes=0, hints=())
        for call in (buffer.agrs_new_session, lambda: buffer.agrs_new_session(True)):
            with pytest.raises(NotImplementedError, match="ElasticBuffer.agrs_new_session:"):
                call()
        assert torch.equal(buffer.combine(found, handle)[0], X)

    on_threads(1, body)


class Communicator:
    """As much of mpi4py's as a buffer wants, over a process group."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def Get_rank(self) -> int:
        return dist.get_rank(self._group)

    def Get_size(self) -> int:
        return dist.get_world_size(self._group)

    def allgather(self, given: Any) -> list[Any]:
        found: list[Any] = [None] * self.Get_size()
        dist.all_gather_object(found, given, self._group)
        return found


def by_communicator(group: Any, rank: int, ranks: int) -> None:
    comm = Communicator(group)
    buffer = deep_ep.Buffer(comm=comm, explicitly_destroy=True)
    assert (buffer.rank, buffer.group_size, buffer.group) == (rank, ranks, comm)
    rows, _, _, _, handle, _ = buffer.dispatch(X, topk_idx=IDS, **layout_of(buffer, IDS, 4))
    assert rows.shape == (4, 128) and torch.equal(rows, torch.ones_like(rows))
    sums, _, _ = buffer.combine(rows, handle)
    assert torch.equal(sums, X * torch.tensor([[1], [1], [2]]))
    buffer.destroy()
    with pytest.raises(ferry.Closed):
        layout_of(buffer, IDS, 4)


def test_a_communicator_in_place_of_a_group() -> None:
    on_processes(2, by_communicator)
