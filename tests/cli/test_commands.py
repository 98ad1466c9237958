"""`ferry info`, `verify`, and what all commands share."""
import json
import unittest

from support import FerryTestCase, ferry


class HelpTestCase(FerryTestCase):
    def test_help_and_version(self):
        for arguments in (["--help"], ["layer", "--help"], ["codec", "encode", "--help"], ["demo", "--help"],
                          ["info", "--help"], ["verify", "--help"], ["bench", "--help"]):
            with self.subTest(arguments=arguments):
                done = ferry(*arguments)
                self.assert_done(done)
                self.assertIn("Usage:", done.stdout)
        self.assertRegex(ferry("--version").stdout, r"^ferry \d+\.\d+\.\d+\n$")

    def test_full_standard_output_is_a_failure(self):
        with open("/dev/full", "w") as full:
            import subprocess
            from support import BINARY
            process = subprocess.run([BINARY, "info"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("standard output", process.stderr)


class InfoTestCase(FerryTestCase):
    def info(self, *options):
        done = ferry("info", "--json", *options)
        self.assert_done(done)
        return json.loads(done.stdout)

    def test_machine(self):
        report = self.info()
        self.assertGreaterEqual(report["devices"][0]["cores"], 1)
        self.assertGreater(report["devices"][0]["memory_bytes"], 0)
        self.assertEqual([b["backend"] for b in report["backends"]], ["cpu", "shmem", "cuda", "nvshmem"])
        self.assertTrue(report["backends"][0]["works"])

    def test_memory_of_a_shape(self):
        """The sum that docs/protocol.md gives: slots of two rounds, results, and words, to within 5 %."""
        ranks, experts, top_k, tokens, hidden = 4, 64, 8, 512, 7168
        for combine, results in (("by_rank", min(ranks, top_k)), ("exact", top_k)):
            with self.subTest(combine=combine):
                report = self.info("--ranks", ranks, "--experts", experts, "--top-k", top_k, "--tokens", tokens,
                                   "--hidden", hidden, "--format", "fp8_block128", "--combine", combine)
                message = report["shape"]["message_bytes"]
                self.assertEqual(message, 7168 + 56 * 4)
                formula = (2 * ranks * tokens * (message + 8 * top_k) + results * tokens * 2 * hidden +
                           ranks * (16 * tokens + 8 * (experts // ranks) + 256) + 8 * tokens * results)
                self.assertAlmostEqual(report["exchange_memory_bytes"] / formula, 1, delta=0.05)
                regions = report["exchange_memory"][:-1]
                self.assertEqual(sum(region["bytes"] for region in regions), report["exchange_memory_bytes"])

    def test_outputs_of_uneven_experts(self):
        report = self.info("--ranks", 4, "--experts", 10, "--top-k", 3, "--tokens", 16, "--hidden", 64)
        self.assertEqual([(o["ranks"], o["experts"], o["row_capacity"]) for o in report["outputs"]],
                         [("0 to 1", 3, 4 * 16 * 3), ("2 to 3", 2, 4 * 16 * 2)])

    def test_named_model(self):
        shape = self.info("--model", "deepseek-v3", "--ranks", 8)["shape"]
        self.assertEqual((shape["hidden"], shape["experts"], shape["top_k"], shape["ranks"]), (7168, 256, 8, 8))

    def test_refusals(self):
        self.assert_refused(ferry("info", "--model", "gpt-1"), 2, "--model gpt-1", "deepseek-v3")
        self.assert_refused(ferry("info", "--ranks", 4), 2, "--experts", "--top-k", "--hidden")
        self.assert_refused(ferry("info", "--model", "mixtral-8x7b", "--ranks", 9), 2, "ranks=9", "experts=8")
        self.assert_refused(ferry("info", "--model", "mixtral-8x7b", "--hidden", 100), 2, "hidden=100", "of 32")
        self.assert_refused(ferry("info", "--backend", "cuda2"), 2, "--backend", "cuda2")

    def test_text(self):
        done = ferry("info", "--model", "mixtral-8x7b")
        self.assert_done(done)
        for word in ("cores", "cpu", "total", "row capacity"):
            self.assertIn(word, done.stdout)


class VerifyTestCase(FerryTestCase):
    def test_quick_cases(self):
        done = ferry("verify", "--quick", "--json", "--case", "reports/")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertGreater(report["ok"], 0)
        self.assertEqual(report["failed"], 0)
        self.assertEqual(len(report["cases"]), report["ok"] + report["skipped"])

    def test_list_and_refusals(self):
        self.assertIn("reports/memory_use", ferry("verify", "--list").stdout)
        self.assert_refused(ferry("verify", "--case", "no such"), 2, "--case no such", "--list")


if __name__ == "__main__":
    unittest.main()
