"""What dispatch and combine give, in plain torch and from the inputs of all ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Case:
    """What every rank knows of a test: shapes, and through them each rank's inputs."""

    ranks: int
    experts: int = 12
    top_k: int = 3
    hidden: int = 256
    tokens: int = 17
    seed: int = 0
    uneven: bool = True

    @property
    def local(self) -> int:
        return self.experts // self.ranks

    def count(self, rank: int) -> int:
        """The last rank has no tokens in some seeds."""
        if not self.uneven:
            return self.tokens
        return 0 if self.seed % 3 == 2 and rank == self.ranks - 1 else max(1, self.tokens - 3 * rank)

    def inputs(self, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x bf16 [n, hidden], ids int64 [n, K] with some -1, weights f32 [n, K]."""
        made = torch.Generator().manual_seed(1000 * self.seed + rank)
        n = self.count(rank)
        x = torch.randn((n, self.hidden), generator=made).to(torch.bfloat16)
        ids = torch.rand((n, self.experts), generator=made).topk(self.top_k, dim=1).indices
        ids[torch.rand((n, self.top_k), generator=made) < 0.2] = -1
        return x, ids, torch.randn((n, self.top_k), generator=made)

    def is_in_rank(self, rank: int) -> torch.Tensor:
        """bool [n, R]: where the tokens of `rank` go."""
        ids = self.inputs(rank)[1]
        return torch.stack([((ids >= 0) & (ids // self.local == to)).any(1) for to in range(self.ranks)], 1)

    def expert_counts(self, rank: int) -> torch.Tensor:
        ids = self.inputs(rank)[1]
        return torch.bincount(ids[ids >= 0], minlength=self.experts).to(torch.int32)

    def rows(self, rank: int) -> list[tuple[int, int]]:
        """(source rank, token) of each row by source."""
        return [(source, int(token)) for source in range(self.ranks)
                for token in self.is_in_rank(source)[:, rank].nonzero().flatten()]

    def of_rows(self, rank: int, values: list[torch.Tensor]) -> torch.Tensor:
        """Row by row the value of its token, where values[source] is that of its source."""
        picked = [values[source][token] for source, token in self.rows(rank)]
        return torch.stack(picked) if picked else values[0][:0]

    def local_ids(self, rank: int) -> torch.Tensor:
        """int64 [rows, K]: the local expert, or -1."""
        ids = self.of_rows(rank, [self.inputs(source)[1] for source in range(self.ranks)])
        return torch.where((ids >= 0) & (ids // self.local == rank), ids - rank * self.local, -1)

    def weights_of_rows(self, rank: int) -> torch.Tensor:
        weights = self.of_rows(rank, [self.inputs(source)[2] for source in range(self.ranks)])
        return torch.where(self.local_ids(rank) >= 0, weights, 0)

    def received(self, rank: int) -> list[int]:
        """Tokens of each expert of the rank."""
        first = rank * self.local
        return [int(sum(self.expert_counts(source)[first + e] for source in range(self.ranks)))
                for e in range(self.local)]


def encoded(x: torch.Tensor, round_scale: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 codes and f32 scales of blocks of 128, as an engine makes them before a dispatch."""
    blocks = x.float().unflatten(1, (-1, 128)) if x.shape[0] else torch.empty((0, x.shape[1] // 128, 128))
    amax = blocks.abs().amax(2).clamp(1e-4)
    scale = amax / 448
    if round_scale:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
        codes = blocks / scale[..., None]
    else:
        codes = blocks * torch.div(torch.tensor(448.0), amax)[..., None]  # `448 / amax` would round twice
    return codes.flatten(1).to(torch.float8_e4m3fn), scale


def packed(scales: torch.Tensor) -> torch.Tensor:
    """Powers of two as bytes, four in an int32."""
    return ((scales.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8).contiguous().view(torch.int32)


def decoded(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    if scales.dtype == torch.int32:
        scales = (scales.contiguous().view(torch.uint8).to(torch.int32) << 23).view(torch.float32)
    return codes.float() * scales.repeat_interleave(128, dim=-1)
