"""Communicators of NCCL, which Ferry does not use."""

from .._arguments import refused

__all__ = ["NCCLCommHandle", "destroy_all_managed_nccl_comm", "get_nccl_comm_handle"]

_WHY = "deep_ep on Ferry has no communicators of NCCL"
NCCLCommHandle = refused("deep_ep.utils.comm.NCCLCommHandle", _WHY)
get_nccl_comm_handle = refused("deep_ep.utils.comm.get_nccl_comm_handle", _WHY)


def destroy_all_managed_nccl_comm() -> None:
    """There are none."""
