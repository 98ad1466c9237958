"""Arguments of newer and of other versions of DeepEP, and those that are no tensors."""

from __future__ import annotations

import re
from typing import Any, Callable, NoReturn

import torch

import ferry


def refuse_unknown(call: str, given: dict[str, Any]) -> None:
    """Takes arguments that ask for nothing. Raises NotImplementedError that names the first one that does."""
    for name, value in given.items():
        is_neutral = not_empty(value) is None or isinstance(value, (bool, int, float, str, tuple, list, dict)) and not value
        if not is_neutral:
            raise NotImplementedError(f"{call}({name}=...): deep_ep on Ferry does not have {name}; leave it out")


def not_empty(value: Any) -> Any:
    """The value, or None in place of a tensor without elements, which asks for nothing."""
    return None if isinstance(value, torch.Tensor) and value.numel() == 0 else value


def require_tensor(name: str, value: Any, shape: str) -> None:
    """Raises TypeError for what is no tensor, and ValueError for other axes than those of `shape`, as "[tokens, K]"."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is {told(value)}; it must be a tensor {shape}")
    if value.is_nested:
        raise TypeError(f"{name} is a nested tensor; it must be a plain tensor {shape}")
    if value.dim() != shape.count(",") + 1:
        raise ValueError(f"{name} has shape {list(value.shape)}; it must be {shape}")


def require_ids(name: str, value: Any) -> None:
    """Numbers of experts: of floats and flags a conversion would make some, and not say so."""
    require_tensor(name, value, "[tokens, K]")
    if value.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{name} is {value.dtype}; it must be torch.int32 or torch.int64")


def require_to_fill(name: str, value: Any, dtype: torch.dtype, shape: list[int], device: torch.device) -> None:
    """Refuses what a call is to fill and cannot, before its first half sends: a second half is called by a hook."""
    require_tensor(name, value, str(shape))
    if value.dtype != dtype or list(value.shape) != shape or value.device != device or not value.is_contiguous():
        raise ValueError(f"{name} is {value.dtype} {list(value.shape)} with strides {list(value.stride())} on "
                         f"{value.device}; it must be {dtype} {shape}, contiguous, on {device}")


def require_bf16(name: str, value: torch.Tensor, why: str = "as the sums are") -> None:
    """Sums, and tokens of the low-latency mode, are bf16: another type would be rounded, and nobody say so."""
    if value.dtype != torch.bfloat16:
        raise ValueError(f"{name} is {value.dtype}; it must be torch.bfloat16, {why}: convert it first")


def require_whole(**given: int) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not hasattr(type(value), "__index__"):
            raise TypeError(f"{name} is {value!r}; it must be a whole number")


def require_at_least(least: int, **given: int) -> None:
    require_whole(**given)
    for name, value in given.items():
        if value < least:
            raise ValueError(f"{name} is {value}; it must be {least} or more")


def biases(bias: Any) -> list[torch.Tensor]:
    """The tensors of a bias: none, one, or a tuple of two, where one may be None."""
    given = [bias] if isinstance(bias, torch.Tensor) or bias is None else bias
    if not isinstance(given, (tuple, list)) or len(given) > 2:
        what = f"has {len(given)} elements" if isinstance(given, (tuple, list)) else f"is {told(given)}"
        raise TypeError(f"bias {what}; it must be a tensor [tokens, hidden], or a tuple of two")
    for one in given:
        if one is not None:
            require_tensor("bias", one, "[tokens, hidden]")
    return [one for one in given if one is not None]


#: Arguments of Ferry's calls, and what they are here.
_NAMES = {"tokens": "x", "rows": "x", "topk_ids": "topk_idx", "in_rank": "is_token_in_rank",
          "expert_counts": "num_tokens_per_expert", "token_scales": "the scales of x", "row_topk_weights": "topk_weights"}
_NAMED = re.compile(rf"((?:rank \d+: )?)({'|'.join(_NAMES)})\b")

#: What Ferry's errors of a lost rank advise, and what callers of this module can do.
_ADVICE = re.compile(r"(\. Make|, or make) a new exchange whose mask names (the missing|that) rank"
                     r"|, or give a mask that names it")
_ADVICE_HERE = (". With enable_shrink the next low-latency call goes on without it; otherwise make a buffer of a group "
                "without it (new_group with use_local_synchronization=True)")


def name_as_callers_do(error: BaseException | None) -> None:
    """Changes a refusal of Ferry that begins with the name of an argument, and what a lost rank asks for."""
    if isinstance(error, ferry.PeerMissing) and error.args and isinstance(error.args[0], str):
        error.args = (_ADVICE.sub(_ADVICE_HERE, error.args[0]), *error.args[1:])
    if isinstance(error, (ferry.InvalidArgument, TypeError)) and error.args and isinstance(error.args[0], str):
        if named := _NAMED.match(error.args[0]):
            rest = error.args[0][named.end():].replace(" max_tokens = ", " num_max_tokens_per_rank = ")
            rest = rest.replace(named[2] + "[", _NAMES[named[2]] + "[")  # another place in the same array
            error.args = (named[1] + _NAMES[named[2]] + rest, *error.args[1:])


def told(value: Any) -> str:
    """A value in an error: its type where it may be long."""
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else str(type(value))


def refused(what: str, why: str) -> Callable[..., Any]:
    """A function that programs may import, and that raises NotImplementedError when it is called."""
    def refuse(*args: Any, **more: Any) -> NoReturn:
        raise NotImplementedError(f"{what}: {why}")

    refuse.__name__ = what.rpartition(".")[2]
    return refuse
