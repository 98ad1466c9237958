"""`ferry layer` on good input: every format and reduction, token counts that do not divide, and what the files hold."""
import json
import unittest

import numpy as np

from support import FORMATS, REDUCTIONS, FerryTestCase, dense_layer, ferry, make_layer


class EveryFormatTestCase(FerryTestCase):
    def check(self, reduction, ranks):
        options = self.save(make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40, seed=ranks))
        for format_name in FORMATS:
            with self.subTest(format=format_name, reduction=reduction, ranks=ranks):
                output = self.folder / f"{format_name}.npy"
                done = ferry("layer", "--ranks", ranks, *options, "--format", format_name, "--combine", reduction,
                             "--check", "--json", "--output", output)
                self.assert_done(done)
                report = json.loads(done.stdout)
                self.assertTrue(report["check"]["ok"])
                self.assertLess(report["check"]["worst_share_of_bound"], 1)
                self.assertGreater(report["check"]["max_error"], 0)
                self.assertEqual(np.load(output).shape, (53, 160))


for reduction in REDUCTIONS:
    for ranks in (1, 3, 4, 8):
        setattr(EveryFormatTestCase, f"test_{reduction}_{ranks}_ranks",
                lambda self, reduction=reduction, ranks=ranks: self.check(reduction, ranks))


class AgainstNumpyTestCase(FerryTestCase):
    """The tool's oracle shares code with the tool, so bf16 is also compared with the layer in numpy."""

    def check(self, arrays, ranks, *options):
        self.assert_done(self.layer(arrays, *options, ranks=ranks))
        y = np.load(self.folder / "y.npy")
        self.assertEqual(y.dtype, np.float32)
        exact = dense_layer(arrays)
        self.assertEqual(y.shape, exact.shape)
        # Three roundings to bf16 at most: of the intermediate, of a row, of a partial sum.
        np.testing.assert_allclose(y, exact, rtol=0, atol=4 * 2**-8 * max(1, np.abs(exact).max()))
        self.assertLess(np.sqrt(np.mean((y - exact) ** 2)), 2**-7 * np.sqrt(np.mean(exact**2)))

    def test_odd_token_counts(self):
        for tokens in (1, 2, 7, 61):
            for reduction in REDUCTIONS:
                with self.subTest(tokens=tokens, reduction=reduction):
                    self.check(make_layer(tokens=tokens, seed=tokens), 4, "--combine", reduction)

    def test_int64_ids(self):
        arrays = make_layer()
        arrays["topk-ids"] = arrays["topk-ids"].astype(np.int64)
        self.check(arrays, 3)

    def test_all_ids_missing(self):
        arrays = make_layer()
        arrays["topk-ids"][:] = -1
        self.assert_done(self.layer(arrays, ranks=3))
        self.assertFalse(np.load(self.folder / "y.npy").any())

    def test_shared_expert(self):
        for reduction in REDUCTIONS:
            with self.subTest(reduction=reduction):
                self.check(make_layer(shared_inter=24), 4, "--combine", reduction, "--check")

    def test_inter_is_any_number(self):
        for inter in (1, 33, 300):
            with self.subTest(inter=inter):
                self.check(make_layer(inter=inter), 2, "--check")

    def test_one_expert_of_many(self):
        self.check(make_layer(experts=1000, tokens=40, hidden=32, inter=4, top_k=8), 8, "--check")


class SharedExpertFormatsTestCase(FerryTestCase):
    def test_formats(self):
        for format_name in FORMATS:
            with self.subTest(format=format_name):
                self.assert_done(self.layer(make_layer(shared_inter=40), "--format", format_name, "--check", ranks=3))

    def test_input_scale(self):
        done = self.layer(make_layer(), "--format", "nvfp4", "--input-scale", "37.5", "--check", ranks=3)
        self.assert_done(done)


class RoundsTestCase(FerryTestCase):
    def test_more_tokens_than_a_round(self):
        arrays = make_layer(tokens=9001, hidden=32, experts=8, top_k=2, inter=8)
        done = self.layer(arrays, "--check", "--json", ranks=2)
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout)["rounds"], 2)

    def test_one_round_with_dump(self):
        arrays = make_layer(tokens=9001, hidden=32, experts=8, top_k=2, inter=8)
        done = self.layer(arrays, "--json", "--dump", self.folder / "dump", ranks=2)
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout)["rounds"], 1)

    def test_rounds_do_not_change_the_output(self):
        arrays = make_layer(tokens=8200, hidden=32, experts=8, top_k=2, inter=8)
        self.assert_done(self.layer(arrays, ranks=1))
        in_rounds = np.load(self.folder / "y.npy")
        self.assert_done(self.layer(arrays, "--dump", self.folder / "dump", ranks=1))
        np.testing.assert_array_equal(in_rounds.view(np.uint32), np.load(self.folder / "y.npy").view(np.uint32))

    def test_no_tokens(self):
        self.assert_done(self.layer(make_layer(tokens=0), "--check", ranks=3))
        self.assertEqual(np.load(self.folder / "y.npy").shape, (0, 64))


class FilesTestCase(FerryTestCase):
    def test_output_is_replaced(self):
        (self.folder / "y.npy").write_text("old")
        self.assert_done(self.layer(make_layer()))
        self.assertEqual(np.load(self.folder / "y.npy").shape, (61, 64))
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith(".")], [])

    def test_non_finite_tokens_reach_the_output(self):
        for format_name in FORMATS:
            with self.subTest(format=format_name):
                arrays = make_layer(missing=0)
                arrays["tokens"][5, 3] = np.nan
                self.assert_done(self.layer(arrays, "--format", format_name, "--check", ranks=3))
                y = np.load(self.folder / "y.npy")
                self.assertTrue(np.isnan(y[5]).any())
                self.assertTrue(np.isfinite(np.delete(y, 5, axis=0)).all())

    def test_table(self):
        done = self.layer(make_layer(), "--check")
        self.assert_done(done)
        for word in ("exchange", "wire", "dispatch", "check", "ok"):
            self.assertIn(word, done.stdout)

    def test_same_bytes_in_every_run(self):
        outputs = []
        for _ in range(2):
            self.assert_done(self.layer(make_layer(), "--format", "mxfp4", ranks=4))
            outputs.append((self.folder / "y.npy").read_bytes())
        self.assertEqual(*outputs)


if __name__ == "__main__":
    unittest.main()
