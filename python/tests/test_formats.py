"""Encoding, decoding and SwiGLU: golden vectors, and numpy's arithmetic."""

import pathlib

import numpy as np
import pytest

import ferry

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "data" / "golden"
CASES = [(name, name, 1.0) for name in ferry.formats.names() if name not in ("bf16", "nvfp4")]
CASES += [("nvfp4", "nvfp4_input_scale_1", 1.0), ("nvfp4", "nvfp4_input_scale_37.5", 37.5)]


@pytest.mark.parametrize("name, files, input_scale", CASES)
def test_golden_bytes(name, files, input_scale):
    rows = np.load(GOLDEN / "rows_bf16_bits.npy")
    payload, scales = ferry.formats.encode(name, rows, input_scale=input_scale)
    assert (payload == np.load(GOLDEN / f"{files}_payload.npy")).all()
    assert (scales.view(np.uint8) == np.load(GOLDEN / f"{files}_scales.npy").view(np.uint8)).all()


def test_e4m3_decodes_as_its_definition_says():
    codes = np.arange(256, dtype=np.uint8)
    codes[(codes & 0x7f) == 0x7f] = 0  # NaN
    payload = np.zeros((1, 256), np.uint8)
    payload[0] = codes
    values = ferry.formats.decode("fp8_block128", payload, np.array([[1.0, 4.0]], np.float32), 256)[0]
    for column, code in enumerate(codes.tolist()):
        exponent, mantissa = code >> 3 & 15, code & 7
        size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0**(exponent - 10)
        assert values[column] == (-size if code & 128 else size) * (1 if column < 128 else 4)


@pytest.mark.parametrize("name", ferry.formats.names())
@pytest.mark.parametrize("hidden", [32, 2880])
def test_what_is_encoded_comes_back(name, hidden):
    encoding = ferry.formats.format_named(name)
    tokens = np.random.default_rng(1).standard_normal((5, hidden)).astype(np.float32)
    payload, scales = encoding.encode(tokens)
    assert payload.shape == (5, encoding.payload_bytes(hidden))
    assert scales is None or scales.shape == (5, encoding.scales_per_row(hidden))
    back = encoding.decode(payload, scales, hidden)
    assert np.abs(back - tokens).max() < {"bf16": 0.02, "fp8_block128": 0.2, "fp8_block128_ue8m0": 0.3}.get(name, 1.1)
    assert encoding.encode(tokens[:0])[0].shape[0] == 0


@pytest.mark.parametrize("call, words", [
    (lambda: ferry.formats.encode("mxfp8", np.zeros((2, 33), np.float32)), ["tokens", "[2, 33]", "32"]),
    (lambda: ferry.formats.encode("mxfp8", np.zeros((2, 64), np.float64)), ["tokens", "f64", "bf16, f16 or f32"]),
    (lambda: ferry.formats.encode("nvfp4", np.zeros((2, 64), np.float32), input_scale=-1.0), ["input_scale", "-1"]),
    (lambda: ferry.formats.encode("mxfp9", np.zeros((2, 64), np.float32)), ["mxfp9", "mxfp8"]),
    (lambda: ferry.formats.decode("mxfp8", np.zeros((2, 63), np.uint8), None, 64), ["payload", "63", "64"]),
    (lambda: ferry.formats.decode("mxfp8", np.zeros((2, 64), np.uint8), np.zeros((2, 3), np.uint8), 64),
     ["scales", "[2, 3]", "[2, 2]"]),
    (lambda: ferry.formats.encode("mxfp8", np.zeros((64, 2), np.float32).T), ["tokens", "contiguous"]),
    (lambda: ferry.formats.encode("bytes_32", np.zeros((2, 32), np.float32)), ["bytes_32", "never looked at"]),
    (lambda: ferry.formats.decode("bytes_32", np.zeros((2, 32), np.uint8), None, 32), ["bytes_32", "never looked at"]),
    (lambda: ferry.formats.bytes_format(24), ["payload_bytes", "24", "16"]),
    (lambda: ferry.formats.bytes_format(32, scales_per_row=1, scale_bytes=3), ["scale_bytes", "3", "1, 2 or 4"]),
    (lambda: ferry.formats.bytes_format(32, scales_per_row=1, scale_layout="rows"), ["scale_layout", "rows"]),
    (lambda: ferry.formats.format_named("bytes_32_"), ["bytes_32_", "bytes_7168_56x4"]),
])
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError) as raised:
        call()
    assert all(word in str(raised.value) for word in words), raised.value


def test_a_name_of_no_format_is_refused_as_such():
    with pytest.raises(ValueError, match="^format: 'mxfp9' is not"):
        ferry.formats.format_named("mxfp9")
    with pytest.raises(ValueError, match="did you mean fp8_block128"):
        ferry.formats.encode("fp8_blok128", np.zeros((1, 64), np.float32))
    assert ferry.formats.format_named("f32").name == "f32"  # of results alone


def test_swiglu():
    random = np.random.default_rng(2)
    rows = random.standard_normal((6, 128)).astype(np.float32)
    offsets = np.array([0, 2, 5], np.uint32)
    payload, scales = ferry.swiglu(rows, offsets)
    gate, up = rows[:, :64].astype(np.float64), rows[:, 64:].astype(np.float64)
    want = gate / (1 + np.exp(-gate)) * up
    got = (payload.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert scales is None and np.allclose(got[:5], want[:5], rtol=2**-8, atol=1e-6) and not got[5].any()
    payload, scales = ferry.swiglu(rows, offsets.astype(np.int32), format="mxfp8")  # as torch has offsets
    back = ferry.formats.decode("mxfp8", payload, scales, 64)
    assert np.allclose(back[:5], want[:5], rtol=0.1, atol=0.05)
    with pytest.raises(ValueError, match="rows"):
        ferry.swiglu(rows[:, :100], offsets)
