"""Expanded rows whose experts begin at multiples that Ferry does not have, as the most rows of an expert: they come close
together, are laid out anew behind the dispatch, and back before the combine."""

from __future__ import annotations

import torch

#: What Ferry's exchanges have.
ALIGNMENTS = (1, 4, 8, 16, 32, 64, 128)


class Slots:
    """Where a row is close together, and where the caller has it. Only the device knows the counts."""

    def __init__(self, counts: torch.Tensor, alignment: int) -> None:
        taken = (counts + (alignment - 1)) // alignment * alignment
        self._counts, self._ends, self._close_ends = counts, taken.cumsum(0), counts.cumsum(0)
        self._starts = (self._ends - taken).to(torch.int32)
        self._close_starts = self._close_ends - counts

    @property
    def starts(self) -> torch.Tensor:
        """Where each expert's rows begin."""
        self._keep()
        return self._starts

    def lay_out(self, given: torch.Tensor, to: torch.Tensor, clears: bool) -> None:
        """Fills rows of the caller from rows close together. `clears`: what is padding becomes 0."""
        self._keep()
        rows = torch.arange(to.shape[0], device=to.device)
        expert = _group_of(rows, self._ends)
        inside = rows - self._starts[expert]
        if given.shape[0] > 0:
            to.copy_(given[(self._close_starts[expert] + inside).clamp(max=given.shape[0] - 1)])
        if clears:
            is_padding = inside >= self._counts[expert]
            to.masked_fill_(is_padding if to.dim() == 1 else is_padding[:, None], 0)

    def close_together(self, given: torch.Tensor, rows: int) -> torch.Tensor:
        """So many rows from those of the caller. What is behind the last one that came is anything."""
        if given.shape[0] == 0:
            return given.new_zeros((rows, *given.shape[1:]))
        places = self.places(torch.arange(rows, device=given.device))
        return given[places.clamp(max=given.shape[0] - 1)]

    def places(self, close: torch.Tensor) -> torch.Tensor:
        """Where the caller has the rows with these numbers."""
        self._keep()
        expert = _group_of(close, self._close_ends)
        return close - self._close_starts[expert] + self._starts[expert]

    def _keep(self) -> None:
        """The current stream may be another one than the dispatch's, and read this when the handle is gone."""
        if self._counts.is_cuda:
            for tensor in (self._counts, self._ends, self._close_ends, self._starts, self._close_starts):
                tensor.record_stream(torch.cuda.current_stream())


def _group_of(rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch.bucketize(rows, ends, right=True).clamp(max=ends.shape[0] - 1)
