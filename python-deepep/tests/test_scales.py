"""Codes with scales that nobody looks at: they arrive bit for bit, whatever their words mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_ep
from launch import on_threads
from test_errors import layout_of

TOKENS, EXPERTS = 5, 4
IDS = torch.tensor([[0, 1], [2, 0], [3, -1], [-1, -1], [1, 3]])
#: As float32 a quiet NaN, signaling ones, a subnormal, -0, infinity. As bytes the scales of MXFP8.
WORDS = torch.tensor([0x7FC00001, 0x7F800001, -0x7FFFFFF, 0x00000001, -0x80000000, 0x7F800000, 0x7C7B7A79],
                     dtype=torch.int32)


def inputs(rank: int, hidden: int, words: int, code: torch.dtype, word: torch.dtype, column_major: bool
           ) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(rank)
    codes = torch.randint(0, 256, (TOKENS, hidden), generator=made, dtype=torch.uint8).view(code)
    scales = WORDS[torch.randint(0, WORDS.numel(), (TOKENS, words), generator=made)].view(word)
    return codes, scales.t().contiguous().t() if column_major else scales


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    plain = [one.clone(memory_format=torch.contiguous_format).view(torch.uint8) for one in (found, expected)]
    return found.dtype == expected.dtype and torch.equal(*plain)


# hidden, words, codes, words: MXFP8 as int32; the last word holds less than four scales; scales of others.
KINDS = [(256, 2, torch.float8_e4m3fn, torch.int32), (160, 2, torch.float8_e4m3fn, torch.int32),
         (96, 1, torch.float8_e4m3fn, torch.int32), (640, 5, torch.float8_e5m2, torch.float32),
         (256, 2, torch.int8, torch.float32), (128, 1, torch.uint8, torch.int32)]


@pytest.mark.parametrize("hidden, words, code, word", KINDS)
def test_words_of_128_columns_arrive_as_they_are(hidden: int, words: int, code: torch.dtype, word: torch.dtype) -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        sent = [inputs(source, hidden, words, code, word, rank == 0) for source in range(ranks)]
        rows = [(source, token) for source in range(ranks) for token in range(TOKENS)
                if bool(((IDS[token] // 2 == rank) & (IDS[token] >= 0)).any())]
        expected = [torch.stack([sent[source][part][token] for source, token in rows]) for part in range(2)]

        def check(found: Any) -> None:
            assert found[1].shape == (found[0].shape[0], words)
            assert all(same(one[:len(rows)], other) for one, other in zip(found, expected))

        buffer = deep_ep.Buffer(world)
        layout = layout_of(buffer, IDS, EXPERTS)
        for given in (sent[rank], list(sent[rank])):
            found, _, _, _, handle, _ = buffer.dispatch(given, topk_idx=IDS, **layout)
            check(found)
            assert found[1].is_contiguous()
        check(buffer.dispatch(sent[rank], handle=handle)[0])
        check(buffer.dispatch(sent[rank], topk_idx=IDS, num_worst_tokens=4 * TOKENS, **layout)[0])
        check(buffer.dispatch(sent[rank], **layout)[0])  # by ranks alone
        y = torch.ones((len(rows), hidden), dtype=torch.bfloat16)
        assert buffer.combine(y, handle)[0][:, 0].tolist() == [1.0, 2.0, 1.0, 0.0, 2.0]

        elastic = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=8)
        for side_by_side in (False, True):
            found, _, _, left, _ = elastic.dispatch(sent[rank], IDS, num_experts=EXPERTS,
                                                    use_tma_aligned_col_major_sf=side_by_side)
            check(found)
            assert found[1].stride() == ((1, -(-len(rows) // 4) * 4) if side_by_side else (words, 1))
            check(elastic.dispatch(sent[rank], handle=left)[0])

    on_threads(2, body)


def test_expanded_rows_of_mxfp8() -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        sent = [inputs(source, 256, 2, torch.float8_e4m3fn, torch.int32, False) for source in range(ranks)]
        buffer = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=8)
        for do_cpu_sync in (True, False):
            codes, scales = buffer.dispatch(sent[rank], IDS, num_experts=EXPERTS, do_expand=True, expert_alignment=8,
                                            do_zero_padding=True, do_cpu_sync=do_cpu_sync)[0]
            for local in range(2):
                came = [(source, token) for source in range(ranks) for token, k in (IDS == 2 * rank + local).nonzero().tolist()]
                for row, (source, token) in enumerate(came):
                    assert same(codes[8 * local + row], sent[source][0][token])
                    assert same(scales[8 * local + row], sent[source][1][token])
                rest = slice(8 * local + len(came), 8 * local + 8)
                assert not codes[rest].view(torch.uint8).any() and not scales[rest].any()

    on_threads(2, body)


@pytest.mark.parametrize("stride", [(1, 8), (4, 1), (4, 4)])
def test_one_word_of_512_columns_at_any_stride(stride: tuple[int, int]) -> None:
    """A tensor of one column counts as contiguous whatever its strides are."""
    def body(world: Any, rank: int, ranks: int) -> None:
        codes, words = inputs(0, 512, 1, torch.float8_e4m3fn, torch.int32, False)
        scales = torch.zeros(8 * 4, dtype=torch.int32).as_strided((TOKENS, 1), stride).copy_(words)
        buffer = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=8)
        found = buffer.dispatch((codes, scales), IDS, num_experts=EXPERTS)[0]
        is_sent = (IDS >= 0).any(1)
        assert same(found[0], codes[is_sent]) and same(found[1], words[is_sent])

    on_threads(1, body)


def test_what_is_taken_is_listed() -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        buffer, elastic = deep_ep.Buffer(world), deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=8)
        layout = layout_of(buffer, IDS, EXPERTS)
        codes, _ = inputs(0, 1024, 8, torch.float8_e4m3fn, torch.int32, False)
        taken = (r"they must be float32 or int32 \[5, 8\], a word for 128 columns, or int32 \[5, 2\], a word for 512 columns "
                 "that packs four powers of two")
        for shape, word in (((5, 1), torch.float32), ((5, 2), torch.float32), ((5, 32), torch.int32), ((4, 8), torch.int32)):
            given = (codes, torch.zeros(shape, dtype=word))
            for call in (lambda: buffer.dispatch(given, topk_idx=IDS, **layout),
                         lambda: elastic.dispatch(given, IDS, num_experts=EXPERTS)):
                with pytest.raises(ValueError, match=rf"x has scales \[{shape[0]}, {shape[1]}\] of {word}.*{taken}"):
                    call()
        with pytest.raises(ValueError, match="x is torch.bfloat16 with scales torch.int32; codes .* one byte each"):
            elastic.dispatch((torch.ones((5, 64), dtype=torch.bfloat16), torch.zeros((5, 1), dtype=torch.int32)), IDS,
                             num_experts=EXPERTS)
        with pytest.raises(ValueError, match="scales torch.uint8; .* must be float32 or int32"):
            elastic.dispatch((codes, torch.zeros((5, 32), dtype=torch.uint8)), IDS, num_experts=EXPERTS)

    on_threads(1, body)
