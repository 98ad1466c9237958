"""Exchange: Ferry's calls with tensors of torch."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from typing import Any, Callable, ContextManager, Dict, Iterable, NoReturn, TypeVar, cast

import torch

from .. import _exchange as plain
from .. import _ferry
from .._arguments import require, seconds, several, text
from .._arrivals import Handle
from .._errors import InvalidArgument
from .._frameworks import current_stream
from .._inputs import dispatch_inputs, sums_to_fill
from .._world import World
from ..formats import Format, format_named
from . import _gradients
from ._arrivals import Arrivals, TensorExchange
from ._group import MOST_SECONDS, world_of_group
from ._tensors import given, to_fill

_TENSORS = frozenset(("tokens", "topk_ids", "topk_weights", "handle", "rows", "in_rank", "expert_counts",
                      "token_scales", "token_global_scales", "row_topk_weights", "src_info"))
_SUMS = {"tokens": "out", "topk_weights": "topk_weights_out", "waited_ns": "waited_ns"}  # as arguments
ROW_ORDERS = ("by_expert", "padded", "by_source", "in_place")
_ON_CPU: ContextManager[dict[str, Any]] = contextlib.nullcontext({})
_Named = TypeVar("_Named", bound=Dict[str, Any])  # arguments by their names
_FOR_NCCL = 32  # multiprocessors: NCCL takes no more unless it is told to
_names = itertools.count()
_open: weakref.WeakValueDictionary[str, Exchange] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class _OnGpu:
    """The GPU is this thread's current one, and its current stream the one of a call."""

    def __init__(self, index: int) -> None:
        self._index = self._before = index

    def __enter__(self) -> dict[str, Any]:
        self._before = torch.cuda.current_device()
        if self._before != self._index:
            torch.cuda.set_device(self._index)
        return {"stream": current_stream(self._index)}

    def __exit__(self, *_: object) -> None:
        if self._before != self._index:
            torch.cuda.set_device(self._before)


def _format_of_gradients(name: str) -> Format:
    try:
        return format_named(name)
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("format:", "backward:", 1)) from None


class Exchange:
    """ferry.Exchange for tensors of torch: the same shape, options, calls and errors.

        with ferry.torch.Exchange.from_group(experts=64, top_k=8, max_tokens=4096, hidden=7168) as exchange:
            arrivals = exchange.dispatch(tokens, topk_ids, topk_weights)
            sums = exchange.combine(my_experts(arrivals))

    What calls return is memory of torch on `device`: that of the world. On a GPU calls go to the current stream. The
    calls of this object are not recorded for a backward pass and refuse tensors that require grad; ferry.torch.dispatch
    and ferry.torch.combine are recorded, and may be compiled.

    backward   None: for inference. A token format ("bf16"): gradients travel in it. Where that is not `format`, they
               have an exchange of their own, with its own buffers
    options    those of ferry.Exchange, but allocate. memory_of: an exchange of this class or a ferry.Exchange; not with
               backward

    Collective. A context manager; close() and the end of the object wait for nobody.
    """

    def __init__(self, world: World, *, experts: int, top_k: int, max_tokens: int, hidden: int,
                 backward: str | Format | None = None, **options: Any) -> None:
        if not isinstance(world, World):
            raise TypeError(f"world is {type(world)}; it must be a ferry.World: of a process group make the exchange "
                            "with Exchange.from_group")
        if "allocate" in options:
            raise TypeError("there is no option allocate: torch allocates")
        self._world, self._owns_world = world, False  # whether close() closes it, too
        self.device = torch.device(world.device)  #: where tensors of its calls lie
        self._are_plain = functools.partial(_ferry.are_plain_tensors, 1, 0)  # DLPack's numbers of the CPU
        self._stream: Callable[[], int] = lambda: 0  # of a call
        if self.device.type == "cuda":
            self._are_plain = functools.partial(_ferry.are_plain_tensors, 2, self.device.index)
            # torch's current one. Calls and torch.empty find the device by themselves.
            self._stream = functools.partial(current_stream, self.device.index)
            # Streams are asked for before the first tensor may be there.
            torch.cuda.init()  # type: ignore[no-untyped-call]
        name = backward.name if isinstance(backward, Format) else backward
        if name is not None:
            text("backward", name, "the name of a format, a Format, or None")
        if "mask" in options:
            options["mask"] = several("mask", options["mask"], "numbers of ranks")  # it is read twice
        self._made_with = dict(options, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden,
                               backward=backward)
        if isinstance(options.get("memory_of"), Exchange):
            options["memory_of"] = options["memory_of"]._base
        _gradients.require_same(world, name, options)
        if name is not None and not _format_of_gradients(name).encodes:
            raise InvalidArgument(f"backward is {name}, whose bytes nothing encodes; gradients are values: give bf16, or "
                                  "another format of ferry.formats.names()")
        wanted = dict(options, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden)
        if name is not None:
            _gradients.require_trainable(world, options)
            if name == getattr(options.get("format", "bf16"), "name", options.get("format", "bf16")):
                wanted.setdefault("returns_weights", _gradients.returns_weights(world))
        self._base = TensorExchange(world, **wanted)
        self._gradients = None if name is None else _gradients.Gradients(world, self._base, name, wanted)
        self._combining: dict[str, Any] = {}  # what combine_wait reads
        self.layout = self._base.layout  #: how this rank's rows lie; see ferry.exchange_layout
        self.format: Format = self._base._format
        # What ferry.torch.dispatch and its fakes read, as plain values that the compiler of torch can follow.
        self.experts, self.hidden, self.top_k, self.ranks = experts, hidden, top_k, world.size
        self.has_shared_group = bool(options.get("fused_shared_expert"))
        self.groups: int = self.layout.groups  #: this rank's experts; one more with a fused shared expert
        self.first_expert: int = self._base.shape.first_expert(world.rank)  #: this rank's first one
        self.rank = world.rank
        self.trains = self._gradients is not None  #: whether ferry.torch.dispatch and combine have a backward pass
        self._rows = {order: self.layout.least_rows(order, 0) for order in ROW_ORDERS}
        self.handle_bytes: int = self.layout.handle_bytes
        self.leaves_short_handles = self._base._short_handles  #: where as many rows as come have room
        self.name = str(next(_names))  #: names it in the graphs of torch.compile
        with _lock:
            _open[self.name] = self

    @classmethod
    def from_group(cls, group: Any = None, *, device: Any = None, **options: Any) -> Exchange:
        """An exchange whose ranks are those of a torch.distributed process group; None: the default group.

        Collective over the group. Ranks are ranks of the group. `device`: None: this process's current GPU where the
        group has none of CPUs (NCCL), else the CPU. `options`: as for Exchange; set_up_deadline counts for the world,
        too. On GPUs reserve_sms is 32 where it is not given, so that NCCL's kernels on other streams have room. Only
        the group's store is used. Processes that give different groups get PeerMissing.
        """
        if options.get("memory_of") is not None:
            raise InvalidArgument("memory_of with from_group, which makes a world of its own; make both exchanges on one "
                                  "world: ferry.torch.world_of_group")
        limit = seconds("set_up_deadline", options.get("set_up_deadline"))
        if limit is not None and not 0 < limit <= MOST_SECONDS:  # of the world it is the deadline
            raise InvalidArgument(f"set_up_deadline is {limit:g} s; it must be above 0 and at most {MOST_SECONDS}")
        world = world_of_group(group, device=device, deadline=limit)
        if world.device != "cpu":
            options.setdefault("reserve_sms", _FOR_NCCL)
        try:
            exchange = cls(world, **options)
        except BaseException:
            world.close()
            raise
        exchange._owns_world = True
        return exchange

    # ---- the calls

    def dispatch(self, tokens: torch.Tensor, topk_ids: torch.Tensor | None = None,
                 topk_weights: torch.Tensor | None = None, *, handle: Handle | torch.Tensor | None = None,
                 outputs: dict[str, torch.Tensor] | None = None, row_capacity: int | None = None,
                 extra: Iterable[str] = (), leave_handle: bool = False, zero_padding: bool = False,
                 deadline: float | None = None, max_blocks: int = 0, **more: Any) -> Arrivals:
        """As ferry.Exchange.dispatch.

        tokens    bfloat16, float16 or float32 [n, hidden]; encoded ones float8_e4m3fn or uint8 [n, bytes of a row]
        outputs   tensors to fill: allocate_outputs, or `arrays` or tensors of earlier Arrivals
        """
        call = (deadline, self._stream(), max_blocks)
        inputs = dispatch_inputs(tokens, topk_ids, topk_weights, handle, more)
        if not self._are_plain(inputs, outputs):  # one look at all is enough, mostly
            inputs, outputs = self._checked(inputs), self._outputs(outputs)
        found: Arrivals = self._base._dispatch(inputs, outputs, row_capacity, extra, leave_handle, zero_padding, call)
        return found

    def dispatch_async(self, tokens: torch.Tensor, topk_ids: torch.Tensor | None = None,
                       topk_weights: torch.Tensor | None = None, *, handle: Handle | torch.Tensor | None = None,
                       deadline: float | None = None, max_blocks: int = 0, **more: Any) -> None:
        """The first half of dispatch: sends the tokens."""
        call = (deadline, self._stream(), max_blocks)
        self._base._dispatch_async(self._checked(dispatch_inputs(tokens, topk_ids, topk_weights, handle, more)), call)

    def wait_for_counts(self, *, deadline: float | None = None) -> _ferry.RowCounts:
        """As ferry.Exchange.wait_for_counts: rows, by_expert, by_source. On a GPU the host waits."""
        return self._base.wait_for_counts(deadline=deadline, stream=self._stream())

    def dispatch_wait(self, outputs: dict[str, torch.Tensor] | None = None, *, row_capacity: int | None = None,
                      extra: Iterable[str] = (), zero_padding: bool = False, deadline: float | None = None,
                      max_blocks: int = 0) -> Arrivals:
        """The second half: waits for the tokens and writes their rows."""
        kept = self._base._dispatching  # the handle of dispatch_async
        found = self._base.dispatch_wait(self._outputs(outputs), row_capacity=row_capacity, extra=extra,
                                         zero_padding=zero_padding, deadline=deadline, stream=self._stream(),
                                         max_blocks=max_blocks)
        self._let_go((kept,))
        return cast(Arrivals, found)

    def combine(self, rows: torch.Tensor, *, out: torch.Tensor | None = None, dtype: torch.dtype | None = None,
                unreduced: bool = False, topk_weights_out: torch.Tensor | None = None,
                waited_ns: torch.Tensor | None = None, epilogue: Any = None, epilogue_context: Any = None,
                deadline: float | None = None, max_blocks: int = 0, **more: Any) -> torch.Tensor:
        """As ferry.Exchange.combine: sends the experts' results home, returns the sums of this rank's tokens."""
        call = (deadline, self._stream(), max_blocks)
        more["rows"] = rows
        sums = sums_to_fill(out, topk_weights_out, waited_ns, epilogue, epilogue_context)
        if not self._are_plain(more, sums):
            more, sums = self._checked(more), self._sums(sums)
        found: torch.Tensor = self._base._combine(more, sums, dtype, unreduced, call)
        return found if out is None or epilogue is not None else out

    def combine_async(self, rows: torch.Tensor, *, deadline: float | None = None, max_blocks: int = 0, **more: Any
                      ) -> None:
        """The first half of combine. Keeps what it reads until combine_wait returns."""
        more["rows"] = rows
        inputs = self._checked(more)
        self._base.combine_async(**inputs, deadline=deadline, stream=self._stream(), max_blocks=max_blocks)
        self._combining = inputs

    def combine_wait(self, *, out: torch.Tensor | None = None, dtype: torch.dtype | None = None,
                     unreduced: bool = False, topk_weights_out: torch.Tensor | None = None,
                     waited_ns: torch.Tensor | None = None, epilogue: Any = None, epilogue_context: Any = None,
                     deadline: float | None = None, max_blocks: int = 0) -> torch.Tensor:
        """The second half: waits for the results and returns the sums."""
        sums = self._sums(sums_to_fill(out, topk_weights_out, waited_ns, epilogue, epilogue_context))
        found: torch.Tensor = self._base._combine_wait(sums, dtype, unreduced, (deadline, self._stream(), max_blocks))
        self._let_go(self._combining.values())
        self._combining = {}
        return found if out is None or epilogue is not None else out

    # ---- the rest

    def allocate_outputs(self, row_capacity: int | _ferry.RowCounts | None = None, *, row_order: str = "by_expert",
                         expert_stride: int = 0, extra: Iterable[str] = (), format: int | str | Format = 0
                         ) -> dict[str, torch.Tensor]:
        """As ferry.Exchange.allocate_outputs, as tensors on `device`."""
        return self._base.allocate_outputs(row_capacity, row_order=row_order, expert_stride=expert_stride, extra=extra,
                                           stream=self._stream(), format=format)

    def most_rows(self, row_order: str = "by_expert", format: int | str | Format = 0) -> int:
        """How many rows any dispatch in this format may bring: a size that serves every round, as graphs need it."""
        if row_order not in ROW_ORDERS:
            raise InvalidArgument(f"row_order is {row_order!r}; it must be one of {', '.join(ROW_ORDERS)}")
        return self._rows[row_order] if format == 0 else self._base.layout_in(format).least_rows(row_order, 0)

    def _sized(self, rows: int, row_order: str) -> dict[str, Any]:
        """What a dispatch is told that has room for so many rows: a GPU's host does not know what comes, so with less
        than the worst case rows may overflow; then the next call, or check(), raises."""
        is_small = rows < self._rows.get(row_order, 0) and self.device.type == "cuda"
        return {"overflow": "reported"} if is_small else {}

    @property
    def shape(self) -> _ferry.Shape:
        """As ferry.Exchange.shape."""
        return self._base.shape

    def layout_in(self, format: int | str | Format) -> _ferry.RowLayout:
        """As ferry.Exchange.layout_in."""
        return self._base.layout_in(format)

    def gradients(self) -> _gradients.Gradients:
        """For the operators: what carries gradients."""
        if self._gradients is None:
            raise InvalidArgument("the exchange was made for inference; make it with backward=\"bf16\"")
        return self._gradients

    def check(self) -> None:
        """Raises what was found out since the last call. It waits for nothing."""
        for exchange in self._all():
            exchange.check()

    def add_to_mask(self, ranks: Iterable[int]) -> None:
        """From the next round on these ranks take no part. Every rank that goes on masks a rank that has left."""
        left = several("ranks", ranks, "numbers of ranks")
        for exchange in self._all():
            exchange.add_to_mask(left)

    def release(self, *, deadline: float | None = None) -> None:
        """As ferry.Exchange.release, the memory for gradients included."""
        for exchange in self._all():
            exchange.release(deadline=deadline, stream=self._stream())

    def restore(self, *, deadline: float | None = None) -> None:
        """As ferry.Exchange.restore."""
        for exchange in self._all():
            exchange.restore(deadline=deadline, stream=self._stream())

    def take_memory(self, *, deadline: float | None = None) -> None:
        """As ferry.Exchange.take_memory. What gradients have of their own stays."""
        self._base.take_memory(deadline=deadline, stream=self._stream())

    def arrival_slots(self, format: int | str | Format = 0) -> dict[str, Any]:
        """As ferry.Exchange.arrival_slots."""
        return {name: slots if isinstance(slots, torch.Tensor) else torch.utils.dlpack.from_dlpack(slots)
                for name, slots in self._base.arrival_slots(format).items()}

    def stats(self) -> dict[str, Any]:
        """As ferry.Exchange.stats: of the forward pass, and of what travels in the same format."""
        return self._base.stats()

    @property
    def memory_bytes(self) -> int:
        """Memory that the exchange allocated on this rank, that for gradients included."""
        return sum(exchange.memory_bytes for exchange in self._all())

    @property
    def closed(self) -> bool:
        return self._base.closed

    def close(self) -> None:
        """Gives the memory back; with from_group the world, too. Local. Again: does nothing."""
        self.__exit__(None)

    def remake(self, **changes: Any) -> Exchange:
        """Closes this exchange and makes another one on its world, with the same shape and options but for `changes`.

        How ranks go on without a lost one: `exchange = exchange.remake(mask=[error.rank])` of a PeerMissing. Collective
        over the ranks that the mask leaves. With from_group the other one closes the world. Where it raises, this
        exchange is closed, and may be remade again.
        """
        for exchange in self._all():
            exchange.close()
        other = type(self)(self._world, **{**self._made_with, **changes})
        other._owns_world, self._owns_world = self._owns_world, False
        return other

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for exchange in self._all():
            exchange.__exit__(kind)
        if self._owns_world:
            self._world.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Exchange cannot be pickled or copied: it is memory of this process; make one on each rank. "
                        "Of a module that has one save state_dict()")

    def __repr__(self) -> str:
        return f"<ferry.torch.Exchange {self.name} on {self.device}: {self._base!r}>"

    # ---- what the calls share

    def _all(self) -> list[plain.Exchange]:
        more = [] if self._gradients is None else self._gradients.all()
        return [self._base, *(exchange for exchange in more if exchange is not self._base)]

    def _on_device(self) -> ContextManager[dict[str, Any]]:
        """What a call is told of streams: on a GPU the current one, else nothing."""
        return _ON_CPU if self.device.type != "cuda" else _OnGpu(self.device.index)

    def _checked(self, named: _Named) -> _Named:
        """The arguments of a call, tensors as `given`."""
        if self._are_plain(named):
            return named
        device = self.device
        for name, value in named.items():
            if name == "bias" and hasattr(value, "__iter__") and not hasattr(value, "dtype"):  # else C++ refuses it
                named[name] = [given(name, one, device) for one in value]
            elif name in _TENSORS and not isinstance(value, Handle) or isinstance(value, torch.Tensor):
                named[name] = given(name, value, device)
        return named

    def _outputs(self, outputs: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor] | None:
        if outputs is None or self._are_plain(outputs):
            return outputs
        require("outputs", outputs, isinstance(outputs, dict), "a dict of tensors, as allocate_outputs makes")
        device = self.device
        return {name: to_fill(name, tensor, device) for name, tensor in outputs.items()}

    def _sums(self, sums: dict[str, Any]) -> dict[str, Any]:
        if not self._are_plain(sums):
            for name, argument in _SUMS.items():
                sums[name] = to_fill(argument, sums[name], self.device)
        return sums

    def _let_go(self, kept: Iterable[Any]) -> None:
        """Of what a first half kept: its memory may be used again when the current stream has come this far."""
        if self.device.type == "cuda":
            for value in kept:
                for one in value if isinstance(value, list) else (value,):
                    tensor = one.data if isinstance(one, Handle) else one
                    if isinstance(tensor, torch.Tensor):
                        tensor.record_stream(torch.cuda.current_stream(self.device))


def open_exchange(name: str) -> Exchange:
    """The exchange of that name, for operators: their arguments are tensors, numbers and text."""
    exchange = _open.get(name)
    if exchange is None:
        raise InvalidArgument(f"exchange {name} is gone; keep the Exchange as long as what was dispatched through it")
    return exchange
