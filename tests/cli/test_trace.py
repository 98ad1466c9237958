"""`ferry bench --trace`: the file that Perfetto opens. What is in a trace of an exchange: tests/unit/trace_test.cpp."""
import json
import unittest

from support import FerryTestCase, ferry

RANKS = 3
ROUNDS = 4
LINE = ["bench", "--backend", "cpu", "--ranks", RANKS, "--experts", 6, "--top-k", 2, "--hidden", 64, "--iterations", 3,
        "--cache", 4]
STEPS = {"dispatch": ["route", "send", "wait", "lay out"], "combine": ["wait", "send", "sum"]}


def tracks_of(events):
    """By rank of each exchange: the slices of its calls, in the order of their begins, the outer ones first."""
    tracks = {}
    for event in events:
        if event["ph"] == "X" and event["tid"] == 1:
            tracks.setdefault(event["pid"], []).append(event)
    return {pid: sorted(slices, key=lambda each: (each["ts"], -each["dur"])) for pid, slices in tracks.items()}


class BenchTraceTestCase(FerryTestCase):
    def trace(self, *options):
        path = self.folder / "trace.json"
        done = ferry(*LINE, *options, "--trace", path)
        self.assert_done(done)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["traceEvents"], done.stdout

    def assert_rounds(self, slices, operations):
        """Each round has each of its steps once, in order and one after the other."""
        calls = [each for each in slices if each["name"] in STEPS]
        self.assertEqual([call["name"] for call in calls], operations * ROUNDS)
        begun = 0
        for call in calls:
            self.assertGreaterEqual(call["ts"], begun)
            begun = call["ts"]
            end = call["ts"] + call["dur"] + 1e-3  # us in steps of a ns
            steps = [each for each in slices
                     if each["name"] in sum(STEPS.values(), []) and call["ts"] <= each["ts"] <= end]
            self.assertEqual([step["name"] for step in steps], STEPS[call["name"]])
            for step in steps:
                self.assertGreaterEqual(step["ts"] + 1e-3, begun)
                begun = step["ts"] + step["dur"]
                self.assertLessEqual(begun, end)

    def test_rounds_of_a_line(self):
        events, text = self.trace("--tokens", 4)
        self.assertIn("4 rounds of 1 line traced in ", text)
        tracks = tracks_of(events)
        self.assertEqual(sorted(pid % 10_000 for pid in tracks), list(range(RANKS)))
        for slices in tracks.values():
            self.assert_rounds(slices, ["dispatch", "combine"])
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(names, {pid: f"rank {pid % 10_000}" for pid in tracks})

    def test_waits_name_ranks(self):
        events, _ = self.trace("--tokens", 64, "--workers", 2)
        waits = [event for event in events if event["ph"] == "X" and event["name"].startswith("rank ")]
        self.assertTrue(waits)
        for wait in waits:
            self.assertEqual(wait["name"], f"rank {wait['args']['rank']}")
            self.assertIn("waiting for", wait["args"]["why"])
            self.assertAlmostEqual(wait["dur"] * 1000, wait["args"]["ns"], delta=1)
        summed = sum(sum(event["args"].get("waited_ns", {}).values()) for event in events if event["ph"] == "X")
        self.assertEqual(summed, sum(wait["args"]["ns"] for wait in waits))

    def test_lines_of_a_sweep(self):
        events, text = self.trace("--tokens", "2,5", "--operation", "dispatch,pair")
        self.assertIn("4 rounds of 4 lines traced in ", text)
        tracks = tracks_of(events)
        self.assertEqual(len(tracks), 4 * RANKS)
        for pid, slices in tracks.items():
            only_dispatch = not any(each["name"] == "combine" for each in slices)
            self.assert_rounds(slices, ["dispatch"] if only_dispatch else ["dispatch", "combine"])

    def test_json_lines_are_alone_on_standard_output(self):
        _, text = self.trace("--tokens", 4, "--json", "--quiet")
        self.assertEqual([json.loads(line)["operation"] for line in text.splitlines()], ["pair"])

    def test_codecs_have_no_rounds(self):
        path = self.folder / "trace.json"
        done = ferry(*LINE, "--tokens", 4, "--operation", "encode", "--trace", path)
        self.assertEqual(done.returncode, 0)
        self.assertIn("--trace has no effect", done.stderr)
        self.assertFalse(path.exists())

    def test_paths_that_cannot_be_written(self):
        missing = self.folder / "missing" / "trace.json"
        for path, why in ((missing, "its directory does not exist"), (self.folder, "is not a regular file"),
                          ("/proc/trace.json", "cannot be written")):
            with self.subTest(path=path):
                done = ferry(*LINE, "--tokens", 4, "--trace", path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"--trace {path}: ", done.stderr)
                self.assertIn(why, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_the_file_of_another_option(self):
        path = self.folder / "lines.json"
        done = ferry(*LINE, "--tokens", 4, "--output", path, "--trace", path)
        self.assert_refused(done, 2, f"--trace {path} is also --output: give another file")

    def test_with_a_simulation(self):
        self.assertEqual(ferry("bench", "--simulate", "--trace", self.folder / "trace.json").returncode, 2)

    def test_help_and_completion(self):
        self.assertIn("--trace FILE", ferry("bench", "--help").stdout)
        self.assertIn("--trace", ferry("completion", "bash").stdout)


if __name__ == "__main__":
    unittest.main()
