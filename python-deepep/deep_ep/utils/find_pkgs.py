"""Where libraries of NVIDIA are installed, which a program that compiles kernels when it runs asks."""

from .._arguments import refused

__all__ = ["find_nccl_root", "find_nvshmem_root", "find_pkg_root"]

_WHY = "deep_ep on Ferry compiles nothing when a program runs"
find_pkg_root = refused("deep_ep.utils.find_pkgs.find_pkg_root", _WHY)
find_nccl_root = refused("deep_ep.utils.find_pkgs.find_nccl_root", _WHY)
find_nvshmem_root = refused("deep_ep.utils.find_pkgs.find_nvshmem_root", _WHY)
