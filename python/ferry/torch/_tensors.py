"""Tensors of torch as Ferry's calls take them, and as torch calls their elements."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from .._errors import InvalidArgument

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_BYTES = frozenset((torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2))
PLAIN = (torch.Tensor, torch.nn.Parameter)


def given(name: str, value: Any, device: torch.device) -> Any:
    """A tensor that a call reads, without its graph, 8-bit floats as bytes. Refuses what the call would misread."""
    if value is None:
        return None
    _require_plain(name, value, device)
    if value.requires_grad and torch.is_grad_enabled():
        raise InvalidArgument(f"{name} requires grad, and the calls of an Exchange are not recorded for a backward "
                              f"pass; use ferry.torch.dispatch and ferry.torch.combine, or give {name}.detach()")
    plain = value.detach() if value.requires_grad else value
    return plain.view(torch.uint8) if plain.dtype in _BYTES else plain


def to_fill(name: str, value: Any, device: torch.device) -> Any:
    """A tensor that a call writes, 8-bit floats as bytes."""
    if value is None:
        return None
    _require_plain(name, value, device)
    if value.requires_grad:
        raise InvalidArgument(f"{name} requires grad; a call cannot write into a tensor that autograd records")
    return value.view(torch.uint8) if value.dtype in _BYTES else value


def is_eager(*tensors: torch.Tensor | None) -> bool:
    """Whether nobody looks on: no compiler, tracer, mode, transform or subclass. Then an operator of torch, which costs
    several times what the call itself takes, adds nothing."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    # The second is of this thread, and leaves out a mode whose handler runs. The first is of all threads.
    if is_in_torch_dispatch_mode() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in PLAIN or _is_wrapped(tensor)):
            return False
    return True


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """A batch of autograd's (is_grads_batched), or a functional tensor: both say that they are a torch.Tensor."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor) or torch._is_functional_tensor(tensor)


def is_recorded(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd records what is done with one of them."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _require_plain(name: str, value: Any, device: torch.device) -> None:
    if type(value) in PLAIN and value.device == device and value.layout is torch.strided and not value.is_nested:
        return
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is {type(value)}; it must be a torch.Tensor on {device}")
    if value.is_nested:
        raise TypeError(f"{name} is a nested tensor; it must be a plain strided tensor: give to_padded_tensor(0), or "
                        "torch.cat(unbind())")
    if type(value) not in PLAIN or value.layout != torch.strided:
        raise TypeError(f"{name} is a {type(value).__name__} of layout {value.layout}; it must be a plain strided "
                        "tensor: of a DTensor give to_local()")
    if value.device != device:
        raise InvalidArgument(f"{name} is on {value.device}; this exchange's tensors are on {device}")


def codes_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The payload of a row format as what torch calls its elements: E4M3 where an element is a byte."""
    return tensor.view(torch.float8_e4m3fn) if name.startswith(("fp8_", "mxfp8")) else tensor


def scales_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The scales of a row format as what torch calls them: E8M0, of nvfp4 E4M3, or float32; of bytes_format u8."""
    if tensor.dtype != torch.uint8 or name.startswith("bytes_"):
        return tensor
    return tensor.view(torch.float8_e4m3fn if name == "nvfp4" else torch.float8_e8m0fnu)
