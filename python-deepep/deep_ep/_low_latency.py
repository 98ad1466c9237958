"""The low-latency mode: rows of each expert at a stride, weights applied where the tokens live."""

from __future__ import annotations

from typing import Any, Callable

import torch

import ferry
from ferry._halves import MOST_FINDINGS

from ._arguments import not_empty, require_bf16, require_tensor, require_to_fill
from ._exchanges import Family, is_refused_for_tokens
from ._handles import LowLatencyHandle, Routing, routing_of
from ._ranks import Ranks
from ._streams import Call


class Half:
    """What is left to do of a call whose receiving half is still to come."""

    def __init__(self, wait: Callable[[Any], None], read: tuple[Any, ...]) -> None:
        self._wait: Callable[[Any], None] | None = wait
        self._read = read  # by the kernels of the second half
        self._error: BaseException | None = None  # of the second half, which has filled nothing
        self._findings: list[ferry.InvalidArgument] = []  # about calls whose kernels found them, not told yet

    def require_done(self, handle: str) -> None:
        """Raises where the second half has not written what it is to write: its memory may hold what was there before."""
        if self._error is not None:
            raise ValueError(f"{handle} is of a dispatch whose hook raised, so it routes nothing: {self._error}"
                             ) from self._error
        if self._wait is not None:
            raise ValueError(f"{handle} is of a dispatch whose hook was not called; call it first: it writes the rows and "
                             "the handle")

    @property
    def is_refused(self) -> bool:
        """Whether its hook has said that all ranks refused it: then nothing is half done."""
        return isinstance(self._error, ferry.InvalidArgument) and is_refused_for_tokens(self._error)

    def finish(self, streams: Any, tells: bool = True) -> None:
        """Enqueues the second half on the current stream; once, whoever asks first.

        Then raises: each finding about a call once, and always why the second half has filled nothing. Without `tells` it
        leaves what Ferry raised to who asks next.
        """
        with streams.call():
            if self._wait is not None:
                wait, self._wait = self._wait, None
                stream: Any = torch.cuda.current_stream() if streams.device.type == "cuda" else None
                self._do(wait, stream)
                for tensor in self._read if stream is not None else ():
                    if isinstance(tensor, torch.Tensor):
                        tensor.record_stream(stream)
                self._read = ()
            if not tells and (self._error is None or isinstance(self._error, ferry.Error)):
                return
            if self._findings and not isinstance(self._error, ferry.PeerMissing):
                raise self._findings.pop(0)
            if self._error is not None:
                raise self._error

    def _do(self, wait: Callable[[Any], None], stream: Any) -> None:
        """A GPU says first, one at a time, what kernels have found out about calls. Then nothing has been done: the exchange
        waits for this half still, unless the finding was that all ranks refused its dispatch."""
        while len(self._findings) < MOST_FINDINGS:
            try:
                return wait(stream)
            except ferry.InvalidArgument as found:
                self._findings.append(found)
            except BaseException as error:
                refusals = [found for found in self._findings if is_refused_for_tokens(found)]
                self._error = error
                if isinstance(error, ferry.OutOfOrder) and refusals:
                    self._findings.remove(refusals[0])
                    self._error = refusals[0]
                return
        self._error = self._findings.pop()


class Padded:
    """What a padded dispatch fills, and how callers see it. `scales`: none, plain, rounded or packed."""

    def __init__(self, call: Call, family: Family, hidden: int, scales: str) -> None:
        local, stride = family.local_experts, family.max_tokens * family.ranks.size
        rows, blocks = local * stride, -(-hidden // 128)
        element = torch.bfloat16 if scales == "none" else torch.float8_e4m3fn
        payload = call.empty((rows, hidden), element)
        self.src_info = call.empty((rows, 2), torch.int32)
        self.counts = call.empty((local,), torch.int32)
        self.source_starts = call.empty((local, family.ranks.size), torch.int32)
        self.handle = call.empty((family.handle_bytes,), torch.uint8)
        self.outputs: dict[str, Any] = {
            "payload": payload if scales == "none" else payload.view(torch.uint8), "src_info": self.src_info,
            "counts": self.counts, "source_starts": self.source_starts, "handle": self.handle,
            "row_offsets": call.empty((local + 1,), torch.int32).view(torch.uint32),
            "expert_ids": call.empty((local,), torch.int32)}
        shaped = payload.view(local, stride, hidden)
        self.x: Any = shaped
        if scales != "none":
            columns = -(-hidden // 512) if scales == "packed" else blocks
            memory = call.empty((local, columns, stride), torch.int32 if scales == "packed" else torch.float32)
            by_row = memory.transpose(1, 2) if columns > 1 else memory.view(local, stride, 1)
            self.outputs.update({"scales": memory} if scales == "plain" else {"row_scales": by_row})
            self.x = (shaped, by_row)


class LowLatency:
    """Exchanges of the low-latency mode, and its calls. `exact`: every row goes home, where its weight is."""

    def __init__(self, ranks: Ranks, streams: Any, shrinks: bool) -> None:
        self._ranks, self._streams, self._shrinks = ranks, streams, shrinks
        self._families: dict[tuple[int, int, int], Family] = {}
        self._halves: dict[tuple[int, str], Half] = {}

    def close(self) -> None:
        for family in self._families.values():
            family.close()
        self._families.clear()
        self._halves.clear()

    def mask(self, rank: int) -> None:
        """From the next call on this rank takes no part. What is half done waits for it still, and is finished first."""
        self._ranks.mask.add(rank)
        if rank == self._ranks.rank:
            return self.close()
        for family in self._families.values():
            family.add_to_mask(rank)
        halves = list(self._halves.values())
        self._halves.clear()
        for half in halves:
            half.finish(self._streams, tells=False)  # its hook raises what Ferry did. The next call makes a new exchange

    def unmask(self, rank: int) -> None:
        """An exchange never takes a rank back, so the next call makes new ones."""
        if rank in self._ranks.mask:
            self._ranks.mask.discard(rank)
            self.close()

    def unmask_all(self) -> None:
        """Makes all anew, on a rank that comes back as well: it does not know that others masked it."""
        self._ranks.mask.clear()
        self.close()

    def dispatch(self, call: Call, x: torch.Tensor, topk_idx: torch.Tensor, max_tokens: int, experts: int, scales: str,
                 stats: dict[str, torch.Tensor], halved: bool) -> tuple[Any, torch.Tensor, LowLatencyHandle, Half | None]:
        require_tensor("x", x, "[tokens, hidden]")
        require_bf16("x", x, "from which FP8 is made, too")
        require_tensor("topk_idx", topk_idx, "[tokens, K]")
        hidden, format = int(x.shape[1]), _FORMATS[scales]
        family = self._family(experts, int(topk_idx.shape[1]), max_tokens)
        exchange = family.exchange(hidden)
        sizes = {"cumulative_counts": (torch.int32, family.local_experts), "waited_ns": (torch.int64, self._ranks.size)}
        for name, tensor in stats.items():
            dtype, size = sizes[name]
            require_to_fill(_STATS[name], tensor, dtype, [size], self._ranks.device)
        self._finish(exchange, "dispatch")
        padded = Padded(call, family, hidden, scales)
        outputs = {**padded.outputs, **stats}
        given: dict[str, Any] = {"tokens": x.detach(), "topk_ids": topk_idx, "row_order": "padded", "format": format}
        routing = Routing(family, padded.handle, int(x.shape[0]), padded.src_info.shape[0], hidden)
        handle = LowLatencyHandle.of(routing, padded.src_info, padded.counts, padded.source_starts)
        half = None
        if halved:
            self._noting(lambda: exchange.dispatch_async(**given))
            half = Half(lambda stream: self._noting(lambda: exchange.dispatch_wait(outputs, stream=stream)),
                        tuple(outputs.values()))
            routing.half = self._halves[id(exchange), "dispatch"] = half
        else:
            self._noting(lambda: exchange.dispatch(**given, outputs=outputs))
        return padded.x, padded.counts, handle, half

    def combine(self, call: Call, x: torch.Tensor, topk_weights: torch.Tensor, handle: Any, out: torch.Tensor | None,
                waited_ns: torch.Tensor | None, halved: bool) -> tuple[torch.Tensor, Half | None]:
        routing: Routing = routing_of(handle, LowLatencyHandle)
        if routing.half is not None:
            routing.half.require_done("handle")
        require_tensor("x", x, "[local experts, rows, hidden]")
        require_bf16("x", x)
        require_tensor("topk_weights", topk_weights, "[tokens, K]")
        family, hidden = routing.family, int(x.shape[-1])
        if x.shape[0] != family.local_experts or x.shape[0] * x.shape[1] != routing.rows:
            raise ValueError(f"x has shape {list(x.shape)}; it must be [{family.local_experts}, "
                             f"{routing.rows // max(1, family.local_experts)}, hidden], as dispatch laid out")
        if out is not None:
            require_to_fill("out", out, torch.bfloat16, [routing.tokens, hidden], self._ranks.device)
        waited_ns = not_empty(waited_ns)
        if waited_ns is not None:
            require_to_fill("combine_wait_recv_cost_stats", waited_ns, torch.int64, [self._ranks.size], self._ranks.device)
        exchange = family.exchange(hidden)
        self._finish(exchange, "combine")
        sums = call.empty((routing.tokens, hidden), torch.bfloat16) if out is None else out.detach()
        given: dict[str, Any] = {"rows": x.detach().flatten(0, 1), "handle": routing.data, "topk_weights": topk_weights.detach()}
        taken: dict[str, Any] = {"out": sums, "waited_ns": waited_ns}
        if not halved:
            self._noting(lambda: exchange.combine(**given, **taken))
            return sums if out is None else out, None
        self._noting(lambda: exchange.combine_async(**given))
        half = Half(lambda stream: self._noting(lambda: exchange.combine_wait(**taken, stream=stream)),
                    (*taken.values(), *given.values()))
        self._halves[id(exchange), "combine"] = half
        return sums if out is None else out, half

    # ---- what the calls share

    def _family(self, experts: int, top_k: int, max_tokens: int) -> Family:
        key = (experts, top_k, max_tokens)
        if key not in self._families:
            self._families[key] = Family(self._ranks, *key, is_masked=True, reduction="exact",
                                          row_orders=("padded",))
        return self._families[key]

    def _finish(self, exchange: ferry.Exchange, kind: str) -> None:
        """An exchange has one dispatch and one combine half done: a second one waits for the first, on all ranks."""
        half = self._halves.pop((id(exchange), kind), None)
        if half is not None and not half.is_refused:
            half.finish(self._streams)

    def _noting(self, call: Callable[[], Any]) -> None:
        """Where ranks may be lost, one that does not come is masked: the next call goes on without it."""
        try:
            call()
        except ferry.PeerMissing as error:
            if self._shrinks and error.rank >= 0:
                self._ranks.mask.add(error.rank)
                self.close()  # an exchange that has lost a rank takes no more calls
            raise


_FORMATS = {"none": "bf16", "plain": "fp8_block128", "rounded": "fp8_block128_ue8m0", "packed": "fp8_block128_ue8m0"}
#: As callers know what a dispatch adds to.
_STATS = {"cumulative_counts": "cumulative_local_expert_recv_stats", "waited_ns": "dispatch_wait_recv_cost_stats"}
