"""Exchanges with more_formats: each dispatch says in which format its tokens travel."""

import numpy as np
import pytest

import devices
import ferry
from oracle import make_layer

LAYER = make_layer(3, 8, 2, 256, [4, 0, 6])
FORMATS = ["bf16", "nvfp4", {"format": "mxfp8", "tiled_scales": True, "expert_alignment": 16}]


def open_exchange(world, **options):
    return devices.open_exchange(world, experts=8, top_k=2, max_tokens=6, hidden=256,
                                 **{"format": "fp8_block128", "more_formats": FORMATS, **options})


def inputs_of(rank):
    return LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank]


def close(got, rank, room):
    want = LAYER.sums(rank, lambda expert: expert + 1)
    return np.abs(np.asarray(got, np.float64) - want).max(initial=0) <= room * np.abs(want).max(initial=1)


# A number, a name, a Format; the room is for the bits of the format.
CHOICES = [(0, "fp8_block128", 0.06), (1, "bf16", 0.02), ("nvfp4", "nvfp4", 0.4), (3, "mxfp8", 0.1),
           (ferry.formats.format_named("bf16"), "bf16", 0.02), ("fp8_block128", "fp8_block128", 0.06)]


@pytest.mark.parametrize("given_outputs", [False, True])
def test_each_dispatch_has_a_format_of_its_own(given_outputs, run):
    def body(world):
        rank = world.rank
        with open_exchange(world) as exchange:
            for asked, name, room in CHOICES:
                row_bytes = ferry.formats.format_named(name).payload_bytes(256)
                more = {}
                if given_outputs and world.device == "cpu":
                    more["outputs"] = exchange.allocate_outputs(format=asked)
                elif given_outputs:
                    room_for_all = exchange.layout_in(asked).least_rows("by_expert")
                    more["outputs"] = exchange.dispatch(*inputs_of(rank), format=asked, row_capacity=room_for_all).arrays
                arrivals = exchange.dispatch(*inputs_of(rank), format=asked, **more)
                assert arrivals.payload.nbytes == arrivals.payload.shape[0] * row_bytes
                assert close(exchange.combine(LAYER.results_of(rank, arrivals)), rank, room)
                exchange.dispatch_async(*inputs_of(rank), format=asked)
                arrivals = exchange.dispatch_wait()
                assert arrivals.payload.nbytes == arrivals.payload.shape[0] * row_bytes
                assert close(exchange.combine(LAYER.results_of(rank, arrivals)), rank, room)

    run(LAYER.ranks, body)


def test_bytes_that_nobody_looks_at(run):
    """Encoded tokens in the place of bf16: rows of any bytes, those of NaN among them."""
    sent = [np.random.default_rng(rank).integers(0, 256, (tokens.shape[0], 512), np.uint8)
            for rank, tokens in enumerate(LAYER.tokens)]
    for rank, rows in enumerate(sent):
        rows[:, 0], rows[:, 1], rows[:, 2:6] = rank, np.arange(len(rows)), 255

    def body(world):
        with open_exchange(world) as exchange:
            arrivals = exchange.dispatch(sent[world.rank], *inputs_of(world.rank)[1:], format="bf16")
            offsets, src_info = (np.asarray(array) for array in (arrivals.row_offsets, arrivals.src_info))
            came = np.asarray(arrivals.payload).view(np.uint8).reshape(-1, 512)
            rows = [row for row in range(offsets[-1]) if src_info[row, 0] >= 0]
            assert rows
            for row in rows:
                source, token = came[row, :2]
                assert token == src_info[row, 0] and (came[row] == sent[source][token]).all()

    run(LAYER.ranks, body)


@pytest.mark.parametrize("scale_bytes, dtype", [(4, np.float32), (2, np.uint8), (1, np.uint8)])
def test_rows_of_a_size_of_their_own(scale_bytes, dtype, run):
    """Codes and scales that Ferry does not know, of other sizes than any of its formats."""
    own = ferry.formats.bytes_format(48, scales_per_row=3, scale_bytes=scale_bytes)
    columns = 6 if scale_bytes == 2 else 3
    assert own.name == f"bytes_48_3x{scale_bytes}" and own == ferry.formats.format_named(own.name) and not own.encodes
    sent = [np.random.default_rng(rank).integers(0, 256, (len(tokens), 48), np.uint8)
            for rank, tokens in enumerate(LAYER.tokens)]
    scales = [np.random.default_rng(9 + rank).integers(1, 200, (len(tokens), columns)).astype(dtype)
              for rank, tokens in enumerate(LAYER.tokens)]
    for rank, rows in enumerate(sent):
        rows[:, 0], rows[:, 1] = rank, np.arange(len(rows))

    def body(world):
        rank = world.rank
        with open_exchange(world, more_formats=[own, "bf16"]) as exchange:
            arrivals = exchange.dispatch(sent[rank], *inputs_of(rank)[1:], token_scales=scales[rank], format=own)
            offsets, src_info, came, factors = (np.asarray(array) for array in (
                arrivals.row_offsets, arrivals.src_info, arrivals.payload, arrivals.scales))
            assert came.shape[1] == 48 and factors.shape[1] == columns and factors.dtype == dtype
            rows = [row for row in range(offsets[-1]) if src_info[row, 0] >= 0]
            assert rows
            for row in rows:
                source, token = came[row, :2]
                assert token == src_info[row, 0] and (came[row] == sent[source][token]).all()
                assert (factors[row] == scales[source][token]).all()
            with pytest.raises(ferry.InvalidArgument, match=f"tokens .*{own.name}: give u8"):
                exchange.dispatch(*inputs_of(rank), format=own)
            assert close(exchange.combine(LAYER.results_of(rank, exchange.dispatch(*inputs_of(rank), format="bf16"))),
                         rank, 0.02)

    run(LAYER.ranks, body)


def test_a_handle_passes_from_format_to_format(run):
    def body(world):
        rank = world.rank
        with open_exchange(world, expert_alignment=1, more_formats=[{"format": "bf16", "expert_alignment": 1}]) as exchange:
            forward = exchange.dispatch(*inputs_of(rank), leave_handle=True)
            assert close(exchange.combine(LAYER.results_of(rank, forward), handle=forward.handle), rank, 0.06)
            backward = exchange.dispatch(LAYER.tokens[rank], handle=forward.handle, format="bf16")
            assert (np.asarray(backward.row_offsets) == np.asarray(forward.row_offsets)).all()
            assert close(exchange.combine(LAYER.results_of(rank, backward), handle=forward.handle), rank, 0.02)

    run(LAYER.ranks, body)


def test_the_layout_in_each_format_is_known_ahead():
    shape, options = dict(experts=8, top_k=2, max_tokens=6, hidden=256), dict(format="fp8_block128", more_formats=FORMATS)

    def body(world):
        with ferry.Exchange(world, **shape, **options) as exchange:
            for number, name in enumerate(["fp8_block128", "bf16", "nvfp4", "mxfp8"]):
                want = exchange.layout_in(number)
                for asked in (number, name, ferry.formats.format_named(name)):
                    found = ferry.exchange_layout(ranks=world.size, rank=world.rank, in_format=asked, **shape, **options)
                    for field in ("payload_row_bytes", "scales_per_row", "scale_dtype", "alignment", "groups"):
                        assert getattr(found, field) == getattr(want, field)

    ferry.run_ranks(3, body)
    for asked, error, text in [(len(FORMATS) + 1, ferry.InvalidArgument, r"in_format is \d; this exchange has 0 \(fp8_block128\)"),
                               ("fp9", ferry.InvalidArgument, "in_format is 'fp9'"), (1.5, TypeError, "in_format is 1.5")]:
        with pytest.raises(error, match=text):
            ferry.exchange_layout(ranks=3, in_format=asked, **shape, **options)


def test_what_is_refused():
    def body(world):
        with pytest.raises(TypeError, match="more_formats names 'scale'; a format has format, tiled_scales"):
            open_exchange(world, more_formats=[{"format": "bf16", "scale": 1}])
        with pytest.raises(TypeError, match="tiled_scales is 3; it must be True or False"):
            open_exchange(world, more_formats=[{"format": "mxfp8", "tiled_scales": 3}])
        with pytest.raises(ferry.InvalidArgument, match=r"more_formats\[0\]: tiled_scales needs"):
            open_exchange(world, more_formats=[{"format": "bf16", "tiled_scales": True}])
        with pytest.raises(ferry.InvalidArgument, match="fp9"):
            open_exchange(world, more_formats=["fp9"])
        with open_exchange(world, more_formats=["mxfp8", {"format": "mxfp8", "tiled_scales": True}]) as exchange:
            given = np.ones((1, 256), np.float32), np.array([[0, 1]], np.int32)
            for format, kind, text in [(3, ferry.InvalidArgument, r"0 \(fp8_block128\), 1 \(mxfp8\), 2 \(mxfp8\)"),
                                       (-1, ferry.InvalidArgument, "format is -1"), ("bf16", ferry.InvalidArgument, "'bf16'"),
                                       ("mxfp8", ferry.InvalidArgument, r"\[1, 2\] of the exchange are; give the number"),
                                       (True, TypeError, "format is True; it must be a whole number"),
                                       (1.5, TypeError, "format is 1.5")]:
                for call in (lambda: exchange.dispatch(*given, format=format),
                             lambda: exchange.allocate_outputs(format=format)):
                    with pytest.raises(kind, match=text):
                        call()
            arrivals = exchange.dispatch(*given, format=2)
            assert arrivals.format == 2
            assert exchange.layout_in(2).scale_layout == "tiled" and exchange.layout_in(0).alignment == exchange.layout.alignment

    ferry.run_ranks(1, body)
