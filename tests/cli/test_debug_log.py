"""The log of FERRY_DEBUG: what is written at each level, to where, and that nothing is without the variable."""
import datetime
import os
import re
import unittest

from support import FerryTestCase, ferry, make_layer

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
LINE = re.compile(rf"^ferry (\S+):(\d+) ({TIME}) (process|rank \d+) (warn|info|trace): (.+)$")


class DebugLogTestCase(FerryTestCase):
    RANKS = 3

    def run_with(self, *options, **variables):
        arrays = self.save(make_layer())
        return ferry("layer", "--backend", "cpu", "--ranks", self.RANKS, *arrays, "--output", self.folder / "y.npy",
                     *options, env={**os.environ, **variables})

    def lines(self, text):
        """[(whose, level, text)], where every line is one of the log."""
        found = [LINE.match(line) for line in text.splitlines()]
        self.assertNotIn(None, found, text)
        return [match.groups()[3:] for match in found]

    def test_times_of_all_processes_are_of_one_clock(self):
        before = datetime.datetime.now(datetime.timezone.utc)
        texts = [self.run_with(FERRY_DEBUG="info").stderr for _ in range(2)]
        after = datetime.datetime.now(datetime.timezone.utc)
        times = [datetime.datetime.fromisoformat(LINE.match(line).group(3)) for text in texts for line in text.splitlines()]
        first, last = times[:len(times) // 2], times[len(times) // 2:]
        self.assertLess(before, min(first))
        self.assertLess(max(first), min(last))
        self.assertLess(max(last), after)

    def logged(self, level, *options):
        done = self.run_with(*options, FERRY_DEBUG=level)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.lines(done.stderr)

    def test_nothing_without_the_variable(self):
        for variables in ({}, {"FERRY_DEBUG": ""}, {"FERRY_DEBUG": "off"}, {"FERRY_DEBUG_FILE": str(self.folder / "log")}):
            self.assert_done(self.run_with(**variables))
        self.assertFalse((self.folder / "log").exists())

    def test_warn_writes_nothing_where_nothing_is_wrong(self):
        self.assertEqual(self.logged("warn"), [])

    def test_info_has_every_rank(self):
        lines = self.logged("info", "--format", "mxfp8")
        self.assertEqual({level for _, level, _ in lines}, {"info"})
        self.assertIn(("process", "info", "world of 3 threads: every rank stores to every other one"), lines)
        made = {whose: text for whose, _, text in lines if "exchange on cpu" in text}
        self.assertEqual(set(made), {f"rank {rank}" for rank in range(self.RANKS)})
        for text in made.values():
            for word in ("format mxfp8", "by_rank", "experts=10 top_k=3", "bytes of symmetric memory", "deadline"):
                self.assertIn(word, text)
            self.assertRegex(text, r", rows \d+ of 64 bytes \+ 2 scales, ")
        for format_name, row in (("bf16", r"128 bytes, "), ("fp8_block128", r"64 bytes \+ 1 scale, ")):
            made = [text for _, _, text in self.logged("info", "--format", format_name) if "exchange on cpu" in text]
            for text in made:
                self.assertRegex(text, r", rows \d+ of " + row)

    def test_trace_has_memory_and_calls(self):
        texts = [text for whose, level, text in self.logged("trace") if (whose, level) == ("rank 1", "trace")]
        for start in ("  messages: ", "dispatch", "combine"):
            self.assertTrue(any(text.startswith(start) for text in texts), (start, texts))

    def test_a_value_that_means_nothing_is_told(self):
        lines = self.logged("loud")
        self.assertEqual(lines, [("process", "warn", "FERRY_DEBUG=loud: must be warn, info, trace or off")])

    def test_levels_in_capitals(self):
        self.assertIn("info", {level for _, level, _ in self.logged("INFO")})

    def test_file(self):
        done = self.run_with(FERRY_DEBUG="info", FERRY_DEBUG_FILE=str(self.folder / "log.%h.%p"))
        self.assert_done(done)
        (path,) = self.folder.glob("log.*")
        self.assertRegex(path.name, r"^log\.[^%]+\.\d+$")
        self.assertGreaterEqual(len(self.lines(path.read_text())), self.RANKS + 1)
        done = self.run_with(FERRY_DEBUG="warn", FERRY_DEBUG_FILE=str(self.folder / "none" / "log"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("cannot be opened: No such file", done.stderr)

    def test_a_file_that_cannot_be_written(self):
        done = self.run_with(FERRY_DEBUG="info", FERRY_DEBUG_FILE="/dev/full")
        self.assertEqual(done.returncode, 0, done.stderr)
        told, *others = self.lines(done.stderr)
        self.assertEqual(told, ("process", "warn", "FERRY_DEBUG_FILE=/dev/full: cannot be written: No space left on "
                                "device; this line and those after it are on standard error"))
        self.assertEqual(others.count(told), 0)
        self.assertEqual(sum("exchange on cpu" in text for _, _, text in others), self.RANKS)

    def test_verify_names_calls_that_threw(self):
        done = ferry("verify", "--backend", "cpu", "--case", "faults/lost_before_dispatch", env={**os.environ, "FERRY_DEBUG": "warn"})
        self.assertEqual(done.returncode, 0, done.stderr)
        threw = [text for _, level, text in self.lines(done.stderr) if level == "warn"]
        self.assertTrue(any(re.match(r"dispatch\w* threw: rank \d", text) for text in threw), threw)
        self.assertTrue(any(re.fullmatch(r"dispatch waiting for .*: epoch \d+ seen, \d+ wanted", text) for text in threw))


if __name__ == "__main__":
    unittest.main()
