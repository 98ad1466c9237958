"""`ferry layer` on good input: every format and reduction, token counts that do not divide, and what the files hold."""
import json
import unittest

import numpy as np

from support import FORMATS, REDUCTIONS, FerryTestCase, bf16, dense_layer, ferry, make_layer


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


class RowOrdersTestCase(FerryTestCase):
    """In whatever order the rows of the experts lie, the output is the same bytes."""

    def output(self, arrays, *options):
        self.assert_done(self.layer(arrays, *options, ranks=3))
        return np.load(self.folder / "y.npy").tobytes()

    def test_outputs_are_the_same_bytes(self):
        arrays = make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40)
        for format_name in FORMATS:
            by_expert = self.output(arrays, "--format", format_name)
            for rows in ("by_source", "padded"):
                with self.subTest(format=format_name, rows=rows):
                    self.assertEqual(self.output(arrays, "--format", format_name, "--rows", rows, "--check"), by_expert)

    def test_what_does_not_go_together_is_refused(self):
        refused = "--rows by_source does not go with "
        for arrays, options, words in ((make_layer(shared_inter=24), (), refused + "--shared-gate-up: "),
                                       (make_layer(), ("--combine", "exact"), refused + "--combine exact: "),
                                       (make_layer(), ("--reduction", "either", "--combine", "exact"),
                                        refused + "--combine exact: "),
                                       (make_layer(), ("--dump", self.folder / "dump"), "--dump")):
            with self.subTest(options=options):
                done = self.layer(arrays, "--rows", "by_source", *options, ranks=2)
                self.assertEqual(done.returncode, 2)
                self.assertIn(words, done.stderr)


class EncodedTokensTestCase(FerryTestCase):
    """Tokens that are encoded before the dispatch give the same bytes, and the same count of lost blocks."""

    def test_outputs_are_the_same_bytes(self):
        arrays = make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40)
        arrays["tokens"][7, 33] = np.nan
        for format_name in FORMATS:
            with self.subTest(format=format_name):
                outputs, blocks = [], []
                for options in ((), ("--encoded",)):
                    done = self.layer(arrays, "--format", format_name, "--input-scale", "3", "--json", *options, ranks=3)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    outputs.append(np.load(self.folder / "y.npy").tobytes())
                    blocks.append(json.loads(done.stdout)["non_finite_blocks"])
                self.assertEqual(outputs[0], outputs[1])
                self.assertEqual(blocks[0], blocks[1])


class ExpertsOnTheHostTestCase(FerryTestCase):
    """`--experts-on cpu` is the default, and says so."""

    def test_default(self):
        arrays = make_layer()
        outputs = []
        for options in ((), ("--experts-on", "cpu")):
            done = self.layer(arrays, "--json", "--check", *options)
            self.assert_done(done)
            report = json.loads(done.stdout)
            self.assertEqual(report["experts_on"], "cpu")
            self.assertLess(report["check"]["sum_error"]["hidden"], 64 * 2**-23)
            outputs.append((self.folder / "y.npy").read_bytes())
        self.assertEqual(*outputs)
        text = self.layer(arrays, "--check").stdout
        self.assertRegex(text, r"experts [0-9.]+ \w+ on the\s+host")
        self.assertIn("sum of 64 products", text)


class ResultFormatsTestCase(FerryTestCase):
    def output(self, arrays, name):
        self.assert_done(self.layer(arrays, "--result-format", name, ranks=3))
        return np.load(self.folder / "y.npy").astype(np.float64)

    def test_fewer_bits_are_further_away(self):
        arrays = make_layer(tokens=53, hidden=256, experts=13, top_k=4, inter=40)
        exact = self.output(arrays, "f32")
        errors = [np.abs(self.output(arrays, name) - exact).mean() for name in ("f16", "bf16", "fp8_block128", "nvfp4")]
        self.assertEqual(errors, sorted(errors))
        self.assertGreater(errors[0], 0)

    def test_check_knows_the_bound_of_each(self):
        plain = make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40)
        shared = make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40, shared_inter=24)
        for name in ("f32", "f16", "fp8_block128", "mxfp8", "mxfp6_e3m2", "mxfp4", "nvfp4"):
            for arrays, options in ((plain, ()), (plain, ("--combine", "exact")), (plain, ("--rows", "by_source")),
                                    (shared, ())):
                with self.subTest(results=name, options=options):
                    done = self.layer(arrays, "--result-format", name, "--check", "--json", *options, ranks=3)
                    self.assert_done(done)
                    share = json.loads(done.stdout)["check"]["worst_share_of_bound"]
                    self.assertLess(share, 1)
                    self.assertGreater(share, 0.001)


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


class CheckTestCase(FerryTestCase):
    """What `--check` finds that comparing with the same arithmetic does not."""

    def refused(self, arrays, *words, options=()):
        process = self.layer(arrays, "--check", *options, ranks=3)
        self.assert_refused(process, 1, "--check", "y.npy is not written", *words)
        self.assert_no_output()

    def not_finite(self, name, place, value, of_token, *words):
        """One value of an array is not finite: the check says how many values of the output are, and why."""
        arrays = make_layer(missing=0)
        arrays[name][place] = value
        without = self.layer(arrays, ranks=3)
        self.assert_done(without)
        y = np.load(self.folder / "y.npy")
        (self.folder / "y.npy").unlink()
        bad = ~np.isfinite(y)
        first = np.argwhere(bad)[0]
        if of_token is not None:
            self.assertEqual(np.flatnonzero(bad.any(axis=1)).tolist(), [of_token])
        counted = f"{bad.sum()} of {y.size} values of the output are NaN or infinite, in {bad.any(axis=1).sum()} of 61"
        self.refused(arrays, counted, f"the first at token {first[0]}, column {first[1]}", *words)
        self.assertIn("values of the output", without.stdout)
        report = json.loads(self.layer(arrays, "--json", ranks=3).stdout)
        self.assertEqual(report["non_finite_outputs"], bad.sum())

    def test_tokens(self):
        self.not_finite("tokens", (5, 3), np.nan, 5, "--tokens", "tokens.npy: nan at [5, 3]")

    def test_router_weights(self):
        for value, shown in ((np.nan, "nan"), (-np.inf, "-inf")):
            with self.subTest(value=shown):
                self.not_finite("topk-weights", (3, 1), value, 3, "--topk-weights", f"weights.npy: {shown} at [3, 1]")

    def test_experts(self):
        self.not_finite("down", (4, 2, 7), np.nan, None, "--down", "down.npy: nan at [4, 2, 7]")
        self.not_finite("gate-up", (9, 50, 0), np.inf, None, "--gate-up", "gate-up.npy: inf at [9, 50, 0]")

    def test_shared_expert(self):
        arrays = make_layer(shared_inter=24)
        arrays["shared-down"][11, 5] = np.nan
        self.refused(arrays, "61 of 3904 values", "in 61 of 61", "token 0, column 11",
                     "shared-down.npy: nan at [11, 5]")

    def test_overflow(self):
        arrays = make_layer()
        arrays["tokens"] *= np.float32(1e30)
        self.refused(arrays, "NaN or infinite", "beyond the largest float32")

    def test_a_weight_of_no_expert_does_not_count(self):
        arrays = make_layer(missing=0)
        arrays["topk-ids"][3, 1] = -1
        arrays["topk-weights"][3, 1] = np.nan
        self.assert_done(self.layer(arrays, "--check", ranks=3))

    def test_input_scale_that_destroys_the_tokens(self):
        arrays = make_layer()
        largest = np.abs(bf16(arrays["tokens"])).max()
        for scale in ("1e-30", "1e30"):
            with self.subTest(scale=scale):
                fits = f"2688 / that is {2688 / largest:.3g}; try --input-scale {2688 / largest:.3g}"
                self.refused(arrays, "61 of 61 tokens are wrong by more than half", "the first is token 0", "--input-scale",
                             fits, options=("--format", "nvfp4", "--input-scale", scale))
        done = self.layer(arrays, "--check", "--format", "nvfp4", "--input-scale", f"{2688 / largest:.3g}", ranks=3)
        self.assert_done(done)

    def test_lost_tokens_are_noted_without_check(self):
        done = self.layer(make_layer(), "--format", "nvfp4", "--input-scale", "1e-30", ranks=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: 61 of 61 tokens are wrong by more than half", done.stderr)

    def test_a_few_tokens_that_are_lost(self):
        arrays = make_layer()
        arrays["tokens"][17] *= np.float32(1e-4)
        arrays["tokens"][40] = 0  # nothing to lose
        self.refused(arrays, "1 of 61 tokens is wrong by more than half of its size", "the first is token 17", options=("--format", "nvfp4"))
        self.assert_done(self.layer(arrays, "--check", "--format", "mxfp4", ranks=3))

    def test_an_output_without_any_error(self):
        arrays = make_layer()
        arrays["topk-weights"][:] = 0
        text = self.layer(arrays, "--check").stdout
        self.assertIn("ok: no error; RMS of the output", " ".join(text.split()))
        self.assertNotIn("% of its bound", text)

    def test_the_format_of_the_results_is_named(self):
        """It costs accuracy, too."""
        for results in ("bf16", "mxfp4"):
            done = self.layer(make_layer(), "--check", "--result-format", results)
            self.assert_done(done)
            text = " ".join(done.stdout.split())
            formats = "bf16" if results == "bf16" else "bf16 and results in mxfp4"
            self.assertIn(f"), {formats}, by_rank, ", text)
            self.assertIn(f"format {formats} beside unencoded tokens: ", text)

    def test_what_the_format_costs(self):
        """Against the layer in numpy on unencoded tokens."""
        arrays = make_layer(missing=0)
        exact = dense_layer(arrays)
        costs = {}
        for format_name in FORMATS:
            with self.subTest(format=format_name):
                done = self.layer(arrays, "--check", "--json", "--format", format_name, ranks=3)
                self.assert_done(done)
                check = json.loads(done.stdout)["check"]
                error = np.load(self.folder / "y.npy") - exact
                rms = lambda values: np.sqrt(np.mean(values**2))
                for key, expected in (("rms_error", rms(error)), ("rms_value", rms(exact)),
                                      ("max_error", np.abs(error).max())):
                    self.assertAlmostEqual(check["unencoded"][key] / expected, 1, delta=1e-4)
                costs[format_name] = check["unencoded"]["rms_error"]
                self.assertLessEqual(check["rms_error"], costs[format_name])
                text = self.layer(arrays, "--check", "--format", format_name, ranks=3).stdout
                percent = 100 * costs[format_name] / check["unencoded"]["rms_value"]
                self.assertRegex(text, rf"(?m)^format +{format_name} beside unencoded tokens: RMS ")
                self.assertIn(f"({percent:.2g} % of the RMS of the output from unencoded tokens)", " ".join(text.split()))
                self.assertIn("RMS of the output from the tokens as sent", " ".join(text.split()))
        self.assertLess(20 * costs["bf16"], costs["mxfp4"])
        self.assertLess(costs["mxfp8"], costs["mxfp6_e3m2"])


    def test_an_output_that_float32_does_not_hold(self):
        """No format is to blame where the output is below the least float32, or 0."""
        arrays = make_layer()
        for factor, words in ((1e-21, "below 1.18e-38, the least normal float32"), (0, "the output is 0 everywhere")):
            arrays["tokens"] *= np.float32(factor)
            done = self.layer(arrays, "--check", "--format", "mxfp8", ranks=3)
            self.assert_done(done)
            text = " ".join(done.stdout.split())
            self.assertIn(words, text)
            self.assertNotIn("beside unencoded tokens", text)
        self.assertNotIn("e+", text)
        empty = make_layer(tokens=0)
        self.assertIn("no tokens, so nothing to compare", self.layer(empty, "--check", "--format", "mxfp8").stdout)

    def test_percents_have_no_exponent(self):
        arrays = make_layer()
        arrays["tokens"] *= np.float32(1e-17)  # bf16 and float32 lose digits of the output
        done = self.layer(arrays, "--check", "--format", "mxfp4", ranks=3)
        self.assert_done(done)
        self.assertNotRegex(done.stdout, r"e\+\d+ %")


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
                done = self.layer(arrays, "--format", format_name, ranks=3)
                self.assert_done(done)
                y = np.load(self.folder / "y.npy")
                self.assertTrue(np.isnan(y[5]).any())
                self.assertTrue(np.isfinite(np.delete(y, 5, axis=0)).all())
                self.assertIn(f"{np.isnan(y).sum()} values of the output in 1 of 61 tokens; token 5, column",
                              done.stdout)

    def test_one_of_each_has_no_plural(self):
        arrays = make_layer(tokens=2, missing=0)
        arrays["tokens"][0, 0] = np.nan
        text = self.layer(arrays, "--format", "mxfp8", "--dump", self.folder / "dump", ranks=1).stdout
        self.assertRegex(text, r"(?m)^exchange +1 rank \(")
        self.assertIn(", 1 round\n", text)
        self.assertIn("1 block of the tokens with a NaN", text)
        self.assertIn("one round, with no warm-up before (ferry bench warms up first)", " ".join(text.split()))
        self.assertRegex(text, rf"(?m)^dump +{self.folder}/dump/rank<r>/\*\.npy")

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
