"""`ferry codec`: the reference vectors byte for byte, the way back, and files that do not fit."""
import json
import unittest

import numpy as np

from support import DATA, FORMATS, FerryTestCase, ferry, from_bf16_bits

GOLDEN = DATA / "golden"


class CodecTestCase(FerryTestCase):
    def scales_of(self, format_name):
        return [] if format_name == "bf16" else ["--scales", self.folder / "s.npy"]

    def encode(self, format_name, array, *options):
        np.save(self.folder / "x.npy", array)
        return ferry("codec", "encode", "--format", format_name, "--in", self.folder / "x.npy", "--payload",
                     self.folder / "p.npy", *self.scales_of(format_name), *options)

    def decode(self, format_name, *options):
        return ferry("codec", "decode", "--format", format_name, "--payload", self.folder / "p.npy", "--out",
                     self.folder / "out.npy", *self.scales_of(format_name), *options)


class GoldenTestCase(CodecTestCase):
    def check(self, format_name, name, *options):
        rows = from_bf16_bits(np.load(GOLDEN / "rows_bf16_bits.npy"))
        done = self.encode(format_name, rows, *options)
        self.assertEqual(done.returncode, 0, done.stderr)  # rows that are smaller or larger than the format holds get a note
        payload, scales = np.load(self.folder / "p.npy"), np.load(self.folder / "s.npy")
        np.testing.assert_array_equal(payload, np.load(GOLDEN / f"{name}_payload.npy"))
        expected = np.load(GOLDEN / f"{name}_scales.npy")
        self.assertEqual(scales.dtype, expected.dtype)
        np.testing.assert_array_equal(scales.view(np.uint8), expected.view(np.uint8))

    def test_block_formats(self):
        for format_name in FORMATS:
            if format_name not in ("bf16", "nvfp4"):
                with self.subTest(format=format_name):
                    self.check(format_name, format_name)

    def test_nvfp4(self):
        for scale in ("1", "37.5"):
            with self.subTest(input_scale=scale):
                self.check("nvfp4", f"nvfp4_input_scale_{scale}", "--input-scale", scale)

    def test_bf16(self):
        bits = np.load(GOLDEN / "rows_bf16_bits.npy")
        self.assert_done(self.encode("bf16", from_bf16_bits(bits)))
        np.testing.assert_array_equal(np.load(self.folder / "p.npy").view(np.uint16), bits)

    def test_scales_of_a_format_that_has_none(self):
        scales = self.folder / "s.npy"
        for way, rows in (self.encode, [np.ones((24, 64), np.float32)]), (self.decode, []):
            done = way("bf16", *rows, "--scales", scales)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"ferry: note: --scales {scales}: format bf16 has no scales", done.stderr)
            self.assertEqual(np.load(scales).shape, (24, 0))


class RoundTripTestCase(CodecTestCase):
    # Largest error of a value, as a share of the largest value of its block.
    STEPS = {"bf16": 2**-8, "fp8_block128": 2**-4, "fp8_block128_ue8m0": 2**-4, "mxfp8": 2**-4, "mxfp6_e2m3": 2**-3,
             "mxfp6_e3m2": 2**-3, "mxfp4": 0.26, "nvfp4": 0.26}

    def test_values_come_back(self):
        rng = np.random.default_rng(7)
        for format_name in FORMATS:
            for hidden in (32, 160, 2880):
                with self.subTest(format=format_name, hidden=hidden):
                    x = rng.standard_normal((300, hidden), dtype=np.float32)
                    self.assert_done(self.encode(format_name, x))
                    self.assert_done(self.decode(format_name))
                    out = np.load(self.folder / "out.npy")
                    self.assertEqual((out.dtype, out.shape), (np.float32, x.shape))
                    self.assertLessEqual(np.abs(out - x).max(), self.STEPS[format_name] * np.abs(x).max())

    def test_encoding_again_changes_nothing(self):
        x = np.random.default_rng(8).standard_normal((40, 128), dtype=np.float32)
        for format_name in FORMATS:
            with self.subTest(format=format_name):
                self.assert_done(self.encode(format_name, x))
                self.assert_done(self.decode(format_name))
                once = np.load(self.folder / "out.npy")
                self.assert_done(self.encode(format_name, once))
                self.assert_done(self.decode(format_name))
                np.testing.assert_allclose(np.load(self.folder / "out.npy"), once, rtol=2**-22)

    def test_float16(self):
        x = np.random.default_rng(9).standard_normal((5, 64)).astype(np.float16)
        self.assert_done(self.encode("mxfp8", x))
        from_half = np.load(self.folder / "p.npy")
        self.assert_done(self.encode("mxfp8", x.astype(np.float32)))
        np.testing.assert_array_equal(from_half, np.load(self.folder / "p.npy"))

    def test_non_finite_blocks_are_counted_and_stay(self):
        x = np.ones((3, 64), np.float32)
        x[1, 40] = np.inf
        done = self.encode("mxfp8", x, "--json")
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout)["non_finite_blocks"], 1)
        decoded = self.decode("mxfp8", "--json")
        self.assert_done(decoded)
        self.assertEqual(json.loads(decoded.stdout), json.loads(done.stdout))
        out = np.load(self.folder / "out.npy")
        self.assertTrue(np.isnan(out[1, 32:]).all())
        self.assertEqual(np.isnan(out).sum(), 32)

    def test_no_rows(self):
        self.assert_done(self.encode("mxfp4", np.zeros((0, 64), np.float32)))
        self.assert_done(self.decode("mxfp4"))
        self.assertEqual(np.load(self.folder / "out.npy").shape, (0, 64))


class InputScaleTestCase(CodecTestCase):
    def test_tokens_that_are_lost_are_told(self):
        x = np.random.default_rng(10).standard_normal((20, 64), dtype=np.float32)
        done = self.encode("nvfp4", x, "--input-scale", 1e-30)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"^ferry: note: 20 of 20 rows are wrong by more than half of their size as nvfp4, the "
                                      r"first is row 0: its RMS is .*, that of its error .*; try --input-scale [\d.]+\)\n$")
        fitting = done.stderr.rstrip(")\n").split()[-1]
        self.assert_done(self.encode("nvfp4", x, "--input-scale", fitting))
        x[3] *= np.float32(1e-20)
        done = self.encode("nvfp4", x, "--input-scale", fitting)
        self.assertIn("1 of 20 rows is wrong", done.stderr)
        self.assertIn("take another format", done.stderr)
        self.assert_done(self.encode("mxfp4", x))

    def test_help_says_what_it_does(self):
        for command in (["layer"], ["codec", "encode"], ["codec", "decode"]):
            self.assertIn("multiplies the tokens before they are encoded", " ".join(ferry(*command, "--help").stdout.split()))


class CodecRefusalTestCase(CodecTestCase):
    def refused(self, process, code, *words):
        self.assert_refused(process, code, *words)
        for name in ("p.npy", "s.npy", "out.npy"):
            self.assert_no_output(name)

    def test_unknown_format(self):
        self.refused(self.encode("fp3", np.ones((2, 32), np.float32)), 2, "fp3", "mxfp4", "nvfp4")

    def test_float64(self):
        self.refused(self.encode("mxfp8", np.ones((2, 32))), 2, "--in", "float64", "float32")

    def test_hidden(self):
        self.refused(self.encode("mxfp8", np.ones((2, 33), np.float32)), 2, "--in", "33", "multiple of 32")

    def test_shape(self):
        self.refused(self.encode("mxfp8", np.ones(32, np.float32)), 2, "--in", "[32]", "[rows, hidden]")

    def test_input_scale(self):
        for value in ("0", "-1", "nan", "inf"):
            with self.subTest(value=value):
                self.refused(self.encode("nvfp4", np.ones((2, 32), np.float32), "--input-scale", value), 2,
                             "--input-scale", "greater than 0")

    def test_scales_are_needed(self):
        np.save(self.folder / "x.npy", np.ones((2, 32), np.float32))
        process = ferry("codec", "encode", "--format", "mxfp8", "--in", self.folder / "x.npy", "--payload",
                        self.folder / "p.npy")
        self.refused(process, 2, "--scales", "mxfp8")

    def test_one_file_for_both(self):
        np.save(self.folder / "x.npy", np.ones((2, 32), np.float32))
        process = ferry("codec", "encode", "--format", "mxfp8", "--in", self.folder / "x.npy", "--payload",
                        self.folder / "p.npy", "--scales", self.folder / "p.npy")
        self.refused(process, 2, f"--scales {self.folder / 'p.npy'} is also --payload: give another file")

    def test_an_input_is_not_overwritten(self):
        x = np.ones((2, 32), np.float32)
        for payload, scales in (("x", "s"), ("p", "x")):
            np.save(self.folder / "x.npy", x)
            process = ferry("codec", "encode", "--format", "mxfp8", "--in", self.folder / "x.npy", "--payload",
                            self.folder / f"{payload}.npy", "--scales", self.folder / f"{scales}.npy")
            self.refused(process, 2, f"{self.folder / 'x.npy'} is also --in: give another file")
            np.testing.assert_array_equal(np.load(self.folder / "x.npy"), x)
        self.assert_done(self.encode("mxfp8", x))
        for name in ("payload", "scales"):
            process = ferry("codec", "decode", "--format", "mxfp8", "--payload", self.folder / "p.npy", "--scales",
                            self.folder / "s.npy", "--out", self.folder / f"{name[0]}.npy")
            self.assert_refused(process, 2, f"is also --{name}: give another file")

    def test_payload_of_another_width(self):
        np.save(self.folder / "p.npy", np.zeros((2, 33), np.uint8))
        np.save(self.folder / "s.npy", np.zeros((2, 1), np.uint8))
        self.assert_refused(self.decode("mxfp8"), 2, "--payload", "33", "multiple of 32")
        self.assert_no_output("out.npy")

    def test_scales_of_another_shape(self):
        np.save(self.folder / "p.npy", np.zeros((2, 64), np.uint8))
        np.save(self.folder / "s.npy", np.zeros((2, 1), np.uint8))
        self.assert_refused(self.decode("mxfp8"), 2, "--scales", "[2, 1]", "[2, 2]")
        np.save(self.folder / "s.npy", np.zeros((2, 2), np.float32))
        self.assert_refused(self.decode("mxfp8"), 2, "--scales", "float32", "uint8")
        self.assert_no_output("out.npy")


if __name__ == "__main__":
    unittest.main()
