"""SGLang's token dispatcher by Ferry: the entry point, which SGLang calls in every process. docs/engines.md.

It imports neither torch nor SGLang, and does nothing unless the environment has FERRY_SGLANG.
"""

from __future__ import annotations

import os
from typing import Any

from .._errors import InvalidArgument

TARGET = "sglang.srt.layers.moe.fused_moe_triton.layer.create_moe_dispatcher"


def register() -> None:
    """Turns the adapter on where FERRY_SGLANG is 1: it stands in for the dispatcher of --moe-a2a-backend deepep."""
    wanted = os.environ.get("FERRY_SGLANG", "")
    if wanted in ("", "0"):
        return
    if wanted != "1":
        raise InvalidArgument(f"FERRY_SGLANG is {wanted!r}; it must be 0 or 1")
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(TARGET, create_moe_dispatcher, HookType.AROUND)


def create_moe_dispatcher(original: Any, moe_runner_config: Any, quant_method: Any) -> Any:
    """What SGLang calls for each layer; `original` is its own. An engine that differs is refused here, where the error
    ends the model's start: SGLang only logs what a plugin raises."""
    from ._sglang import make

    return make(original, moe_runner_config, quant_method)
