"""Communicators of NCCL, which Ferry does not use."""

from .._arguments import refused

__all__ = ["destroy_all_managed_nccl_comm", "get_nccl_comm_handle"]

get_nccl_comm_handle = refused("deep_ep.utils.comm.get_nccl_comm_handle", "deep_ep on Ferry has no communicators of NCCL")


def destroy_all_managed_nccl_comm() -> None:
    """There are none."""
