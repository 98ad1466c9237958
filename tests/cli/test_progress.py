"""What commands that take long say on standard error, in a pipe, while a step is not done."""
import re
import unittest

from support import SANITIZED, FerryTestCase, ferry, make_layer, on_a_terminal

SMALL = ["--backend", "cpu", "--cache", 4, "--hidden", 64, "--experts", 8, "--top-k", 2, "--tokens", 2]


class ProgressTestCase(FerryTestCase):
    def said(self, *arguments):
        done = ferry(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr.splitlines()

    def long_bench(self, say):
        """What `say` finds on standard error of a bench that takes longer than two seconds, on a machine of any speed."""
        for power in range(6):
            if lines := say(["bench", *map(str, SMALL), "--iterations", str(50_000 * 4**power)]):
                return lines
        self.fail("no bench took two seconds")

    def test_bench_within_a_line(self):
        first, *_ = self.long_bench(lambda arguments: self.said(*arguments))
        self.assertRegex(first, r"^bench: lines 0 of 1 \(0 %\), \d+ s; (making \d+ input sets|measuring the )[^;]*, \d+ s$")
        self.assertEqual(self.said("bench", *SMALL, "--seconds", 4, "--quiet"), [])

    def on_narrow_terminal(self, arguments):
        text = on_a_terminal(*arguments, columns=50, stream="stderr")
        return [line for line in re.split("\r\033\\[K", text) if line]

    def test_a_line_that_is_rewritten_is_no_wider_than_the_terminal(self):
        lines = self.long_bench(self.on_narrow_terminal)
        self.assertTrue(lines[0].startswith("bench: lines 0 of 1"), lines)
        self.assertLess(max(map(len, lines)), 50)

    def test_nothing_of_short_work(self):
        self.assertEqual(self.said("codec", "encode", "--format", "bf16", "--in", self.save(make_layer())[1], "--payload",
                                   self.folder / "p.npy"), [])

    @unittest.skipIf(SANITIZED, "takes minutes")
    def test_checks_count_the_tokens_of_the_layer(self):
        for tokens in (5000, 20000, 80000):  # until a check takes two seconds
            arrays = make_layer(tokens=tokens, hidden=512, experts=8, inter=1024)
            lines = [line for line in self.layer(arrays, "--check", "--format", "mxfp8").stderr.splitlines()
                     if line.startswith("check")]
            for line in lines:
                self.assertRegex(line, rf"^check of the (rounding|format): tokens \d+ of {tokens} \(")
            if lines:
                return
        self.fail("no check took two seconds")

    @unittest.skipIf(SANITIZED, "takes minutes")
    def test_demo_within_a_format(self):
        (self.folder / "text").write_text(" ".join(f"word{i % 997}" for i in range(20000)))
        first, *_ = self.said("demo", "--backend", "cpu", "--no-svg", "--format", "mxfp4", "--text", self.folder / "text")
        self.assertRegex(first, r"^demo: formats 0 of 1 \(0 %\), \d+ s; (the dense layer in float64|mxfp4), \d+ s$")


if __name__ == "__main__":
    unittest.main()
