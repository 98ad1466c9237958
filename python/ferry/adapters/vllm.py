"""vLLM's exchange of tokens by Ferry: the entry point, which vLLM calls in every process. docs/engines.md.

It imports neither torch nor vLLM, and does nothing unless the environment has FERRY_VLLM.
"""

from __future__ import annotations

import os

from .._errors import InvalidArgument

FORMATS = ("bf16", "fp8_block128")


def register() -> None:
    """Turns the adapter on where FERRY_VLLM is 1, or the format in which tokens travel. Again: does nothing."""
    wanted = os.environ.get("FERRY_VLLM", "")
    if wanted in ("", "0"):
        return
    name = "bf16" if wanted == "1" else wanted
    if name not in FORMATS:
        raise InvalidArgument(f"FERRY_VLLM is {wanted!r}; it must be 0, 1, {' or '.join(FORMATS)}")
    from ._vllm import install

    install(name)
