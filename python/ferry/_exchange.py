"""Exchange: the calls that carry tokens to experts and back."""

from __future__ import annotations

from typing import Any, Iterable, NoReturn, Sequence

from . import _ferry, _frameworks
from ._arguments import flag, function, names_in, several, text, whole_number
from ._arrays import Allocate, Array, counted, empty
from ._arrivals import Arrivals, Handle
from ._errors import InvalidArgument, OutOfOrder
from ._halves import begin_dispatch, end_left_half
from ._hooks import Epilogue
from ._inputs import (Begin, Call, Inputs, Reduces, begins_of, combine_inputs, dispatch_inputs, new_sums, reduces,
                      require_sums, sums_to_fill, to_fill, without)
from ._layout import options_of, shape_of
from ._memory import WithMemory, core_of, leave, share
from ._outputs import Formats, Spec, spec_of
from ._transports import close_at_end
from ._world import World
from .formats import Format, format_named


class Exchange(WithMemory):
    """The buffers and options for one shape, and the calls that carry tokens to experts and back.

    A round is one dispatch and its combine. All calls are collective: the same calls in the same order on all ranks.
    Making one is collective, too: the ranks compare shape and options. Calls come from one thread at a time and
    release the GIL.

        with ferry.Exchange(world, experts=8, top_k=2, max_tokens=128, hidden=7168, format="fp8_block128") as exchange:
            arrivals = exchange.dispatch(tokens, topk_ids, topk_weights)
            sums = exchange.combine(my_experts(arrivals))

    experts, top_k, max_tokens (most tokens that a rank dispatches) and hidden (columns, a multiple of 32) are those of
    all ranks. The options are the fields of ferry::ExchangeOptions by the same names (include/ferry/options.h);
    deadlines are seconds, `mask` names ranks that take no part, `row_orders` is an iterable of names. `more_formats`
    has names, or dicts of format, tiled_scales, expert_alignment and dynamic_scales: a dispatch may take one of them.
    `memory_of`: an exchange of this world in whose memory the new one lies; one of the two has it (take_memory).
    `allocate(name, shape, dtype)` makes the arrays that dispatch and combine return; None: numpy does, and on a GPU
    the framework (torch, cupy) whose arrays a call is given.

    On a GPU (`device`) arrays lie in its memory, and calls enqueue kernels on `stream` and return: a number, or a stream
    of torch or cupy; None: that framework's current one. The arrays of a call stay as they are until its kernels are
    done. What only a kernel can find out is raised by the next call, or by check(). `max_blocks`: most blocks of a
    kernel, 0: no limit. CPU ranks have neither: they look at no `stream`, and ignore `max_blocks` of 0 or more.

    Hooks are router_weight(token, k) -> weight and epilogue(token, column, values), where `values` is a f32 array that
    the function may keep. Functions of Python run with the GIL, on any thread. What one raises ends the call and comes
    out of it. docs/python-hooks.md has more, and compiled functions, which run without the GIL. Raises Unsupported
    where capabilities()["function_hooks"] of the world is False, as with GPUs.

    A context manager; close() and the end of the object are local and wait for nobody. Raises InvalidArgument that
    says which value is bad or differs between ranks, or PeerMissing.
    """

    _arrivals_type: type[Arrivals] = Arrivals  # of what dispatches return; ferry.torch has its own

    def __init__(self, world: World, *, experts: int, top_k: int, max_tokens: int, hidden: int,
                 format: str | Format = "bf16", reduction: str = "by_rank", tiled_scales: bool = False,
                 expert_alignment: int = 0, fused_shared_expert: bool = False, skip_a2a: bool = False,
                 allreduce_world_size: int = 1, result_format: str | Format = "bf16", late_weights: bool = False,
                 returns_weights: bool = False, dynamic_scales: bool = False, message_copies: int = 2,
                 more_formats: Iterable[str | Format | dict[str, Any]] = (), concurrent: int = 1,
                 row_orders: str | Iterable[str] | None = None, mask: Iterable[int] = (),
                 deadline: float | None = None, set_up_deadline: float | None = None, workers: int = 1,
                 reserve_sms: int = 0, short_handles: bool = False, memory_of: Exchange | None = None,
                 allocate: Allocate | None = None) -> None:
        given = {name: value for name, value in locals().items()
                 if name not in ("self", "world", "experts", "top_k", "max_tokens", "hidden", "memory_of", "allocate")}
        if not isinstance(world, World):
            raise TypeError(f"world is {world!r}; it must be a ferry.World: run_ranks gives one to each rank")
        shape = shape_of(ranks=world.size, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden)
        self._allocate = None if allocate is None else function("allocate", allocate)
        self._framework = ""  # of the newest arrays on a GPU
        # Streams of the newest dispatch, call and combine; how many tokens the dispatch had.
        self._stream = self._newest = self._stream_home = self._tokens = 0
        self._begun: Begin = (0, "by_expert", 0, 0, ())  # of the dispatch that has begun
        self._dispatching: object = None  # what C++ reads until the wait
        self._combining: object = None
        self._reduces: Reduces = (0, "f32")  # of the combine that has begun
        self._world = world  # dispatch_all ends the waits of its ranks
        options = options_of(given, world.size)
        self._core = _ferry.Exchange(world._core, shape, options, core_of(memory_of, world))
        share(self, memory_of)
        if world.kind == "shmem":
            close_at_end(self)
        self._format = format if isinstance(format, Format) else format_named(options.format)
        self._short_handles = options.short_handles and bool(world.capabilities()["asked_counts"])
        self._formats = Formats(self._core, [self._format, *map(format_named, options.more_formats)], self._short_handles)
        self._device, self._on_cpu = self._core.device, self._core.device == "cpu"

    @property
    def rank(self) -> int:
        return self._core.rank

    @property
    def shape(self) -> _ferry.Shape:
        """ranks, experts, top_k, max_tokens, hidden; num_local_experts(rank), first_expert(rank), owner_of(expert)."""
        return self._core.shape

    @property
    def layout(self) -> _ferry.RowLayout:
        """How this rank's rows lie; see exchange_layout."""
        return self._core.layout

    def layout_in(self, format: int | str | Format) -> _ferry.RowLayout:
        """`layout` of dispatches in this format: a number, or the name of one of more_formats."""
        return self._formats.layouts[self._formats.number(format)]

    @property
    def device(self) -> str:
        """Where the arrays of its calls lie: "cpu", "cuda:1"."""
        return self._device

    @property
    def closed(self) -> bool:
        return self._core.closed

    def allocate_outputs(self, row_capacity: int | _ferry.RowCounts | None = None, *, row_order: str = "by_expert",
                         expert_stride: int = 0, extra: str | Iterable[str] = (), like: Array = None,
                         stream: Any = None, format: int | str | Format = 0) -> dict[str, Array]:
        """What a dispatch of that order and format fills, as arrays that are not initialised.

        row_capacity  None: the worst case, which no dispatch refuses; RowCounts: what came, also of a short handle
        like          on a GPU: an array of the framework that makes them; None: that of the newest call
        extra         outputs beside the usual ones: handle, counts, source_starts, row_weights, row_sources, messages,
                      row_scales, overflow, cumulative_counts, waited_ns (docs/outputs.md). The last two start as zeros
        """
        number = self._stream_of(stream, like)
        wanted = frozenset(names_in("extra", extra))
        outputs = self._empty(self._formats.specs(row_capacity, row_order, expert_stride, wanted,
                                                  self._formats.number(format), self._begun[0]), number)
        for name in wanted and wanted & {"cumulative_counts", "waited_ns"}:
            if self._on_cpu:
                outputs[name][...] = 0
            else:
                _ferry.clear(outputs[name], self._stream_of(stream, outputs[name]))
        return outputs

    def dispatch(self, tokens: Array, topk_ids: Array | None = None, topk_weights: Array | None = None, *,
                 handle: Handle | Array | None = None, outputs: dict[str, Array] | None = None,
                 row_capacity: int | None = None, extra: str | Iterable[str] = (), leave_handle: bool = False,
                 zero_padding: bool = False, deadline: float | None = None, stream: Any = None, max_blocks: int = 0,
                 **more: Any) -> Arrivals:
        """Sends each token to the ranks of its experts; returns the rows that came to this rank.

        tokens        bf16, f16 or f32 [n, hidden], columns contiguous; or u8 [n, payload_row_bytes]: encoded already
        topk_ids      i32 or i64 [n, K], contiguous, distinct in a token; -1 is no expert
        topk_weights  f32, bf16 or f16 [n, K]; not with reduction exact; None: 1
        handle        in place of ids: the routing of an earlier dispatch of as many tokens
        outputs       arrays to fill (allocate_outputs, or `arrays` of earlier Arrivals); None: new ones, with as many
                      rows as came, or as row_capacity says
        extra         as at allocate_outputs
        leave_handle  whether the Arrivals have a handle; with short_handles and as many rows as came a short one
        zero_padding  clears payload, scales and weights of padding rows
        deadline      seconds of each wait; None: the exchange's
        more          router_weight (a hook in place of topk_weights), router_weight_context, input_scale, row_order,
                      expert_stride, overflow, in_rank, expert_counts, token_scales, token_global_scales:
                      ferry::DispatchInput (include/ferry/exchange.h) says what each is; format: 0, the exchange's own,
                      or the number or the name of one of more_formats

        Arrays are of the caller, and read when it returns. bf16 is ml_dtypes.bfloat16, or its bits as uint16. Raises
        InvalidArgument (nothing has moved unless it says so), OutOfOrder, PeerMissing. On a GPU without outputs and
        row_capacity the host waits for the counts: not while the stream is captured, and what a kernel of an earlier
        call found may come out behind the tokens. Then the error says that this dispatch has travelled and lost its rows.
        """
        call = (deadline, self._number(stream, tokens), max_blocks)
        found: Arrivals = self._dispatch(dispatch_inputs(tokens, topk_ids, topk_weights, handle, more), outputs,
                                         row_capacity, extra, leave_handle, zero_padding, call)
        return found

    def dispatch_async(self, tokens: Array, topk_ids: Array | None = None, topk_weights: Array | None = None, *,
                       handle: Handle | Array | None = None, deadline: float | None = None, stream: Any = None,
                       max_blocks: int = 0, **more: Any) -> None:
        """The first half of dispatch: sends the tokens. What it was given has been read when it returns."""
        call = (deadline, self._number(stream, tokens), max_blocks)
        self._dispatch_async(dispatch_inputs(tokens, topk_ids, topk_weights, handle, more), call)

    def wait_for_counts(self, *, deadline: float | None = None, stream: Any = None) -> _ferry.RowCounts:
        """Between the halves, any number of times: how many rows come. rows, by_expert, by_source.

        It waits, also on a GPU. `stream`: None: that of dispatch_async.
        """
        return self._core.wait_for_counts((deadline, self._same(stream), 0))

    def dispatch_wait(self, outputs: dict[str, Array] | None = None, *, row_capacity: int | None = None,
                      extra: str | Iterable[str] = (), zero_padding: bool = False, deadline: float | None = None,
                      stream: Any = None, max_blocks: int = 0) -> Arrivals:
        """The second half: waits for the tokens and writes their rows. Arguments as at dispatch.

        `stream`: None: that of dispatch_async.
        """
        number = self._same(stream)
        if outputs is None:
            _, order, stride, format, lacks = self._begun
            asks = row_capacity is None and self._formats.asks(order, extra := names_in("extra", extra))
            room = self.wait_for_counts(deadline=deadline, stream=number) if asks else row_capacity
            outputs = without(lacks, self.allocate_outputs(
                room, row_order=order, expert_stride=stride, extra=extra, stream=number, format=format))
        self._core.dispatch_wait(to_fill(outputs, zero_padding), (deadline, number, max_blocks))
        self._dispatching = None
        return self._arrivals(outputs, number)

    def combine(self, rows: Array, *, out: Array | None = None, dtype: Any = None, unreduced: bool = False,
                topk_weights_out: Array | None = None, waited_ns: Array | None = None,
                epilogue: Epilogue | Any = None, epilogue_context: Any = None, deadline: float | None = None,
                stream: Any = None, max_blocks: int = 0, **more: Any) -> Array:
        """Sends the experts' results home; returns the sums of this rank's tokens, [n, hidden].

        rows              bf16, f16 or f32 [at least as many as Arrivals.rows, hidden], columns contiguous
        out               where the sums go; None: a new array, of `dtype`, or of the type of rows
        unreduced         of a combine that is exact: [n, K, hidden], a missing k as zeros
        topk_weights_out  f32 [n, K]: takes what row_topk_weights of the ranks sent home (returns_weights)
        waited_ns         i64 [R]: the nanoseconds that this combine waited for each rank are added to it
        epilogue          a hook that takes the unrounded sums: none are written or returned. epilogue_context: its own
        deadline          seconds of each wait; None: the exchange's
        more              topk_weights, router_weight (a hook in place of them), router_weight_context, handle, bias (up
                          to two arrays), sum_order, apply_weights, reduction (by_rank or exact, where the exchange's
                          is either), row_topk_weights, src_info: ferry::CombineInput (include/ferry/exchange.h)

        Without a handle the rows of the newest dispatch go back, once. Raises as dispatch.
        """
        call = (deadline, self._number(stream, rows), max_blocks)
        more["rows"] = rows
        sums = sums_to_fill(out, topk_weights_out, waited_ns, epilogue, epilogue_context)
        return self._combine(more, sums, dtype, unreduced, call)

    def combine_async(self, rows: Array, *, deadline: float | None = None, stream: Any = None, max_blocks: int = 0,
                      **more: Any) -> None:
        """The first half of combine. The exchange keeps a reference to what it reads until combine_wait returns."""
        call = (deadline, self._number(stream, rows), max_blocks)
        more["rows"] = rows
        self._combine_async(more, call)

    def combine_wait(self, *, out: Array | None = None, dtype: Any = None, unreduced: bool = False,
                     topk_weights_out: Array | None = None, waited_ns: Array | None = None,
                     epilogue: Epilogue | Any = None, epilogue_context: Any = None, deadline: float | None = None,
                     stream: Any = None, max_blocks: int = 0) -> Array:
        """The second half: waits for the results and returns the sums. Arguments as at combine; `stream`: None: that of
        combine_async."""
        number = self._stream_home if stream is None else self._number(stream, out)
        sums = sums_to_fill(out, topk_weights_out, waited_ns, epilogue, epilogue_context)
        return self._combine_wait(sums, dtype, unreduced, (deadline, number, max_blocks))

    def check(self) -> None:
        """Raises what was found out since the last call. It waits for nothing."""
        self._core.check()

    def add_to_mask(self, ranks: Iterable[int]) -> None:
        """From the next round on these ranks take no part. Every rank that goes on masks a rank that has left."""
        self._core.add_to_mask(several("ranks", ranks, "numbers of ranks"))

    def arrival_slots(self, format: int | str | Format = 0) -> dict[str, Array]:
        """Where messages arrive, for rows in_place (`gather`): payload [copies, R, T, ...], scales, global_scales.

        Views of the exchange's memory, which they keep alive, to be read only. What a dispatch left there is valid until
        this rank's next dispatch, with message_copies=4 until the third next. bf16 comes as uint16. On a GPU they are
        of the framework of the newest call, torch's with its own bf16; without one, anything may take them by DLPack.
        """
        names = ("payload", "scales", "global_scales")
        views = self._core.arrival_slots(self._framework == "torch", self._formats.number(format))
        return {name: _frameworks.taken(self._framework, view) for name, view in zip(names, views) if view is not None}

    def stats(self) -> dict[str, Any]:
        """Counts since the exchange was made, by the names of ferry::Stats, from any thread.

        received_tokens and received_bytes are u64 [R, local experts]; messages_sent, bytes_sent and waited_ns u64 [R].
        """
        return counted(self._core.stats())

    def close(self) -> None:
        """Gives the memory back. Local: others that wait for this rank raise PeerMissing. Again: does nothing.

        Where a `with` ends by an exception, the others are told at once.
        """
        self._core.close(False)
        leave(self)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._core.close(kind is not None)
        leave(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Exchange cannot be pickled: it is memory of this process; make one on each rank")

    def __repr__(self) -> str:
        return "<ferry.Exchange, closed>" if self.closed else f"<ferry.Exchange, rank {self.rank}, {self.shape!r}>"

    def _empty(self, specs: Sequence[Spec], stream: int) -> dict[str, Array]:
        """Memory for what a call on that stream fills."""
        if self._allocate is not None:
            return {name: self._allocate(name, shape, dtype) for name, shape, dtype, *_ in specs}
        if not self._on_cpu:
            framework, device = self._framework, self._device
            with _frameworks.on_stream(framework, stream, device):
                return {name: _frameworks.empty(framework, shape, dtype, device) for name, shape, dtype, *_ in specs}
        return {name: empty(shape, dtype, alignment) for name, shape, dtype, alignment, _ in specs}

    def _number(self, stream: Any, array: Array) -> int:
        """The stream of a call that is given this array. CPUs have none."""
        if self._on_cpu:
            return 0
        self._newest = self._stream_of(stream, array)  # it lives until the next call: C++ may ask about it
        return self._newest

    def _stream_of(self, stream: Any, array: Array) -> int:
        """The same of what is no call of C++."""
        if self._on_cpu:
            return 0
        self._framework = _frameworks.framework_of(array) or self._framework
        return _frameworks.stream_number(stream, self._framework, self._device)

    def _same(self, stream: Any) -> int:
        """The stream of a second half; None: that of the first."""
        return self._stream if stream is None else self._number(stream, None)

    # The calls behind the names of their arguments. ferry.torch has names of its own.

    def _dispatch(self, inputs: Inputs, outputs: dict[str, Array] | None, row_capacity: int | None,
                  extra: str | Iterable[str], leave_handle: bool, zero_padding: bool, call: Call) -> Any:
        """Arrivals of _arrivals_type."""
        extra = names_in("extra", extra)
        if leave_handle is not False and flag("leave_handle", leave_handle):
            extra = (*extra, "handle")
        if outputs is None and row_capacity is None:
            return begin_dispatch(self, inputs, None, extra, zero_padding, call)()
        begins = begins_of(inputs, self._formats)
        if outputs is None:
            outputs = without(begins[4], self.allocate_outputs(
                row_capacity, row_order=begins[1], expert_stride=begins[2], extra=extra, stream=call[1], format=begins[3]))
        begun, self._begun = self._begun, begins  # outputs that are too small leave it begun
        try:
            self._core.dispatch(inputs, to_fill(outputs, zero_padding), call)
        except BaseException as error:
            self._begun = begins if isinstance(error, InvalidArgument) else begun
            if not isinstance(error, OutOfOrder):
                raise
            end_left_half(self, call[0])
            return self._dispatch(inputs, outputs, row_capacity, extra, False, zero_padding, call)
        return self._arrivals(outputs, call[1])

    def _dispatch_async(self, inputs: Inputs, call: Call) -> None:
        begins = begins_of(inputs, self._formats)
        try:
            self._core.dispatch_async(inputs, call)
        except OutOfOrder:
            end_left_half(self, call[0])
            self._core.dispatch_async(inputs, call)
        self._stream = call[1]
        self._begun, self._dispatching = begins, inputs.get("handle")

    def _arrivals(self, outputs: dict[str, Array], stream: int) -> Arrivals:
        self._tokens, order, stride, format, lacks = self._begun
        left = outputs.get("handle")
        handle = None if left is None else Handle(left, self._tokens, order, stride, not lacks)
        return self._arrivals_type(self._core, self._formats.formats[format], outputs, handle, order, stride, stream,
                                   format)

    def _combine(self, given: dict[str, Any], sums: dict[str, Any], dtype: Any, unreduced: bool, call: Call) -> Any:
        """The sums. `given`, `sums`: as combine_inputs and sums_to_fill have them."""
        inputs, tokens = combine_inputs(given, self._tokens)
        if sums["tokens"] is None:
            self._make_sums(sums, dtype, unreduced, reduces(inputs, tokens), call[1])
        try:
            self._core.combine(inputs, sums, call)
        except BaseException:
            if self._core.hook_raised:  # combine_wait may follow
                self._combining, self._reduces, self._stream_home = inputs, reduces(inputs, tokens), call[1]
            raise
        return None if "epilogue" in sums else sums["tokens"]

    def _combine_async(self, given: dict[str, Any], call: Call) -> None:
        inputs, tokens = combine_inputs(given, self._tokens)
        self._core.combine_async(inputs, call)
        self._combining, self._reduces, self._stream_home = inputs, reduces(inputs, tokens), call[1]

    def _combine_wait(self, sums: dict[str, Any], dtype: Any, unreduced: bool, call: Call) -> Any:
        if sums["tokens"] is None:
            self._make_sums(sums, dtype, unreduced, self._reduces, call[1])
        self._core.combine_wait(sums, call)
        self._combining = None
        return None if "epilogue" in sums else sums["tokens"]

    def _make_sums(self, sums: dict[str, Any], dtype: Any, unreduced: bool, sources: Reduces, stream: int) -> None:
        """Puts a new array into what a combine fills, unless an epilogue takes the sums."""
        if "epilogue" in sums:
            return require_sums(self.shape, sums, dtype, unreduced, sources)
        spec = spec_of("sums", *new_sums(self.shape, dtype, unreduced, sources), 16)
        sums["tokens"] = self._empty((spec,), stream)["sums"]
