"""What this build of Ferry has in it."""

from __future__ import annotations

from typing import Any

from . import _ferry


def build_info() -> dict[str, Any]:
    """What was built.

    version             that of the package
    command             whether the `ferry` command came with it
    cuda                the CUDA toolkit whose kernels are in it, as "13.0"; None: it has no GPU ranks
    cuda_architectures  what they were compiled for, as "90a-real"
    """
    return _ferry.build_info()


def has_cuda() -> bool:
    """Whether this build has GPU ranks. cuda_devices() says whether there are GPUs."""
    return _ferry.build_info()["cuda"] is not None
