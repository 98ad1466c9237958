"""`ferry demo`: its table, its picture, where the picture goes, and texts of all lengths."""
import json
import os
import pty
import re
import signal
import subprocess
import threading
import unittest
import xml.etree.ElementTree

from support import BINARY, FORMATS, SANITIZED, FerryTestCase, ferry

TOP_K, EXPERTS = 4, 32
SENTENCE = "A ferry carries <cars> & people over the river, and back again. "  # 16 tokens
SENTENCES = 40
TOKENS = 16 * SENTENCES


def texts_of(svg):
    """Every text of a picture, with its place."""
    root = xml.etree.ElementTree.fromstring(svg)
    texts = root.iter("{http://www.w3.org/2000/svg}text")
    return [(float(text.get("x")), float(text.get("y")), text.text) for text in texts]


class DemoRuns:
    def demo(self, *options):
        """A short run: of one format, and of a short text where the options name none."""
        text = [] if "--text" in options else self.words(SENTENCE * SENTENCES)
        done = ferry("demo", "--format", "bf16", *text, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def report(self, *options):
        return json.loads(self.demo("--json", *options).stdout)

    def words(self, text, name="text.txt"):
        (self.folder / name).write_text(text)
        return ["--text", self.folder / name]

    def built_in(self, *options):
        done = ferry("demo", "--format", "bf16", *options, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done


@unittest.skipIf(SANITIZED, "eight formats of the whole text take minutes there")
class TableTestCase(DemoRuns, FerryTestCase):
    def test_formats(self):
        done = ferry("demo", "--json", "--no-svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual([line["format"] for line in report["formats"]], FORMATS)
        self.assertTrue(all(line["ok"] for line in report["formats"]))
        errors = {line["format"]: line["rms_error"] for line in report["formats"]}
        self.assertLess(errors["bf16"], errors["mxfp8"])
        self.assertLess(errors["mxfp8"], errors["mxfp4"])
        self.assertLess(errors["mxfp4"], 0.5)
        self.assertEqual(report["backend"], "cpu")

    def test_chosen_formats(self):
        done = ferry("demo", "--json", "--no-svg", "--format", "mxfp4,mxfp8")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = json.loads(done.stdout)["formats"]
        self.assertEqual([line["format"] for line in lines], ["mxfp4", "mxfp8"])
        self.assertEqual([line["share_of_bf16"] for line in lines], [272 / 1024, 528 / 1024])
        self.assert_refused(ferry("demo", "--format", "fp9"), 2, "--format", "fp9")

    def interrupted(self, *options):
        """Standard output of a demo that was interrupted in its fourth format, mxfp8, as its log says."""
        process = subprocess.Popen([BINARY, "demo", "--backend", "cpu", "--no-svg", *options], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=os.environ | {"FERRY_DEBUG": "info"})
        while "format mxfp8" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)
        return text

    def test_interrupted(self):
        text = self.interrupted()
        self.assertRegex(text, r"\nInterrupted in mxfp\w+; formats done: [3-7] of 8\.\n")
        for format_name in FORMATS[:3]:
            self.assertRegex(text, rf"(?m)^{format_name} .* ok$")
        report = json.loads(self.interrupted("--json"))
        self.assertEqual([line["format"] for line in report["formats"][:3]], FORMATS[:3])
        self.assertIn("mxfp", report["interrupted"])

    def test_choices_become_messages(self):
        """A token goes to a rank once: at most once for each rank and each choice, and to all that own one of them."""
        for ranks in (1, 3, 32):
            with self.subTest(ranks=ranks):
                report = self.report("--ranks", ranks, "--no-svg")
                matrix = report["messages_between"]
                self.assertEqual((report["ranks"], report["tokens"], report["choices"]), (ranks, TOKENS, TOKENS * TOP_K))
                self.assertEqual([len(line) for line in matrix], [ranks] * ranks)
                for source, line in enumerate(matrix):
                    tokens = TOKENS // ranks + (source < TOKENS % ranks)
                    self.assertTrue(all(0 <= messages <= tokens for messages in line), line)
                    self.assertGreaterEqual(sum(line), tokens)
                    self.assertLessEqual(sum(line), tokens * min(ranks, TOP_K))
                total = sum(map(sum, matrix))
                self.assertEqual(report["messages"], total - sum(matrix[rank][rank] for rank in range(ranks)))
                if ranks == 1:
                    self.assertEqual(total, TOKENS)
                if ranks == EXPERTS:
                    self.assertEqual(total, TOKENS * TOP_K)
                line = report["formats"][0]
                self.assertEqual(line["dispatch_bytes"], 1024 * report["messages"])

    def test_ranks_and_seed(self):
        self.assert_refused(ferry("demo", "--ranks", 33, "--no-svg"), 2, "--ranks 33", "1 to 32")
        self.assert_refused(ferry("demo", "--ranks", 0, "--no-svg"), 2, "--ranks 0", "1 to")
        reports = [self.report("--no-svg", *seed) for seed in ([], ["--seed", 0], ["--seed", 1])]
        self.assertEqual(reports[0]["messages_between"], reports[1]["messages_between"])
        self.assertNotEqual(reports[1]["messages_between"], reports[2]["messages_between"])
        self.assertNotEqual(reports[1]["formats"][0]["rms_error"], reports[2]["formats"][0]["rms_error"])

    def test_columns_are_explained(self):
        text = self.demo("--no-svg", "--ranks", 1, "--format", "bf16").stdout
        for title in ("bytes a token", "dispatched", "of bf16", "with combine", "RMS error", "max error", "dispatch", "oracle"):
            self.assertRegex(text, rf"(?m)^{title}: ")
        self.assertIn("on one rank there are none", text)

    def test_text(self):
        done = self.built_in("--no-svg")
        self.assertIn("10336 choices of an expert are", done.stdout)
        self.assertIn("dispatch: its time, the median of 5, after one to warm up", done.stdout)
        self.assertNotIn("drawn", done.stdout)


class NumbersTestCase(DemoRuns, FerryTestCase):
    """Counts are in groups of digits for people, and without spaces for programs."""

    def table_line(self, output):
        (line,) = [line for line in output.splitlines() if line.startswith("bf16 ")]
        return line

    def test_pipe(self):
        self.assertEqual(self.table_line(self.demo("--no-svg").stdout).split()[:2], ["bf16", "1024"])

    def test_terminal(self):
        reader, writer = pty.openpty()
        process = subprocess.Popen([BINARY, "demo", "--format", "bf16", *self.words(SENTENCE * SENTENCES), "--no-svg"],
                                   stdout=writer, stderr=subprocess.DEVNULL)
        os.close(writer)
        output = b""
        try:
            while piece := os.read(reader, 4096):
                output += piece
        except OSError:  # what the end of a terminal is
            pass
        os.close(reader)
        self.assertEqual(process.wait(), 0)
        self.assertEqual(self.table_line(output.decode()).split()[:3], ["bf16", "1", "024"])


class PictureTestCase(DemoRuns, FerryTestCase):
    def test_shows_routing_and_traffic(self):
        path = self.folder / "map.svg"
        report = self.report("--svg", path)
        self.assertEqual(report["svg"], str(path))
        texts = [text for _, _, text in texts_of(path.read_text())]
        matrix = report["messages_between"]
        spaced = lambda count: f"{count:,}".replace(",", " ")
        for wanted in ("rank 3", "expert 31", "tokens in all", "from 3", "to 3", spaced(report["choices"]),
                       spaced(sum(map(sum, matrix))), spaced(report["messages"])):
            self.assertIn(wanted, texts)
        neighbours = set(zip(texts, texts[1:]))  # a cell is a number over its bytes
        for source, line in enumerate(matrix):
            for to, messages in enumerate(line):
                below = "stay" if source == to else f"{messages * 1024 / 1000:.1f} kB"
                self.assertIn((str(messages), below), neighbours)

    def test_ranks_with_unlike_numbers_of_experts(self):
        for ranks in (3, 16):
            with self.subTest(ranks=ranks):
                self.demo("--ranks", ranks, "--svg", self.folder / "map.svg")
                places = {text: y for _, y, text in texts_of((self.folder / "map.svg").read_text())}
                for rank in range(ranks):
                    owned = EXPERTS // ranks + (rank < EXPERTS % ranks)
                    first = rank * (EXPERTS // ranks) + min(rank, EXPERTS % ranks)
                    self.assertLess(places[f"expert {first}"] - 12, places[f"rank {rank}"])
                    self.assertGreater(places[f"expert {first + owned - 1}"] + 12, places[f"rank {rank}"])

    def test_round_numbers(self):
        """Ticks of the axis and steps of the legend are multiples of 1, 2 or 5 times a power of ten."""
        for sentences in (4, 37, 269):
            with self.subTest(sentences=sentences):
                self.demo(*self.words(SENTENCE * sentences), "--svg", self.folder / "map.svg")
                texts = texts_of((self.folder / "map.svg").read_text())
                (axis,) = [y for _, y, text in texts if text.startswith("position in the text")]
                (legend,) = [y for _, y, text in texts if text.startswith("tokens that a column sends")]
                for numbers in ([int(text) for _, y, text in texts if abs(y - axis + 18) < 1],
                                [int(text) for _, y, text in texts if y == legend and text.isdigit()]):
                    self.assertGreaterEqual(len(numbers), 3, numbers)
                    self.assertLessEqual(len(numbers), 12, numbers)
                    step = numbers[1]
                    self.assertIn(str(step).rstrip("0"), ("1", "2", "5"))
                    self.assertEqual(numbers, list(range(0, step * len(numbers), step)))

    def test_any_bytes_make_a_picture(self):
        (self.folder / "bytes").write_bytes(bytes(range(1, 256)) * 9 + b" \xe2\x82 \xed\xa0\x80zz \xf4\x90\x80\x80zz")
        self.demo("--text", self.folder / "bytes", "--svg", self.folder / "map.svg")
        texts_of((self.folder / "map.svg").read_text(encoding="utf-8"))


@unittest.skipIf(SANITIZED, "seven runs of the whole text take minutes there")
class WhereThePictureGoesTestCase(DemoRuns, FerryTestCase):
    def test_standard_output(self):
        for name in ("-", "/dev/stdout"):
            with self.subTest(name=name):
                done = self.built_in("--svg", name)
                self.assertIn((24.0, 38.0, "Which expert gets which words: Moby-Dick, chapter 1"), texts_of(done.stdout))
                self.assertIn("10336 choices of an expert", done.stderr)
                self.assertEqual(list(self.folder.iterdir()), [])
                self.assert_refused(ferry("demo", "--json", "--svg", name), 2, f"--svg {name}", "--json",
                                    "standard output")

    def test_nowhere(self):
        done = self.built_in("--no-svg", "--json")
        self.assertIsNone(json.loads(done.stdout)["svg"])
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assert_refused(ferry("demo", "--no-svg", "--svg", "x.svg", cwd=self.folder), 2, "--svg", "--no-svg")

    def test_folder_that_cannot_be_written(self):
        refused = ferry("demo", cwd="/proc")
        self.assert_refused(refused, 1, "--svg ferry-demo.svg", "cannot be written", "--no-svg")
        done = ferry("demo", "--format", "bf16", "--no-svg", cwd="/proc")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_refused(ferry("demo", "--svg", ""), 2, "--svg: its value is empty", "--no-svg")

    def test_device_and_pipe(self):
        self.demo("--svg", "/dev/null")
        self.assertTrue(os.path.exists("/dev/null"))
        os.mkfifo(self.folder / "pipe")
        drawn = []
        reader = threading.Thread(target=lambda: drawn.append((self.folder / "pipe").read_text()))
        reader.start()
        self.demo("--svg", self.folder / "pipe")
        reader.join()
        texts_of(drawn[0])
        self.assert_refused(ferry("demo", "--format", "bf16", "--svg", "/dev/full"), 1, "--svg /dev/full",
                            "No space left on device")

    def test_full_standard_output(self):
        with open("/dev/full", "w") as full:
            process = subprocess.run([BINARY, "demo", "--format", "bf16", "--svg", "-"], stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(process.returncode, 1)
        self.assertIn("standard output: No space left on device", process.stderr)


class DeadlineTestCase(DemoRuns, FerryTestCase):
    def test_a_call_waits_as_docs_lost_ranks_says(self):
        log = self.folder / "log"
        done = ferry("demo", "--backend", "cpu", "--format", "bf16", "--no-svg", *self.words(SENTENCE * SENTENCES),
                     env={**os.environ, "FERRY_DEBUG": "info", "FERRY_DEBUG_FILE": str(log)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(re.findall(r"deadline (\d+) ms", log.read_text())), {"30000"})


class TextsTestCase(DemoRuns, FerryTestCase):
    def test_own_text(self):
        done = self.demo(*self.words(SENTENCE * 40), "--svg", self.folder / "map.svg")
        self.assertIn("640 tokens of", done.stdout)
        self.assertIn("640 tokens, top-4", " ".join(text for _, _, text in texts_of((self.folder / "map.svg").read_text())))

    def test_too_short(self):
        for text, counted in (("too short", "has 2 words"), ("one", "has 1 word,"), ("", "has 0 words")):
            with self.subTest(text=text):
                self.assert_refused(ferry("demo", *self.words(text), "--no-svg"), 2,
                                    f"--text {self.folder / 'text.txt'}: it {counted}", "64 at least")
        self.assert_refused(ferry("demo", "--text", "/dev/null", "--no-svg"), 2, "--text /dev/null: it has 0 words")
        self.assert_refused(ferry("demo", *self.words("call me ishmael " * 40 + "\0"), "--no-svg"), 2,
                            f"--text {self.folder / 'text.txt'}: byte 640 is 0")

    def test_what_cannot_be_read(self):
        demo = lambda path: ferry("demo", "--text", path, "--svg", self.folder / "map.svg")
        self.assert_refused(demo(self.folder / "none.txt"), 1, "none.txt: cannot be read: No such file or directory")
        self.assert_refused(demo(self.folder), 1, "cannot be read: Is a directory")
        self.assert_refused(demo("/dev/zero"), 1, "--text /dev/zero: it is larger than 64 MiB", "give a part of it")
        self.assert_no_output("map.svg")

    @unittest.skipIf(SANITIZED, "20000 tokens take minutes there")
    def test_a_novel_is_cut(self):
        done = self.demo(*self.words(SENTENCE * 2000, "novel.txt"), "--no-svg")
        self.assertIn("20000 tokens of", done.stdout)
        self.assertIn(f"{self.folder / 'novel.txt'} has 32000 words; the first 20000 are taken", done.stdout)

    def test_words_in_json(self):
        report = self.report(*self.words(SENTENCE * 10), "--no-svg")
        self.assertEqual((report["words"], report["tokens"]), (160, 160))


class RefusalTestCase(DemoRuns, FerryTestCase):
    def test_refusals(self):
        svg = ["--svg", self.folder / "map.svg"]
        self.assert_refused(ferry("demo", "--svg", self.folder / "no" / "map.svg"), 1, "--svg", "does not exist")
        self.assert_refused(ferry("demo", "--backend", "cpu", "--share-gpus", *svg), 2, "--share-gpus",
                            "threads of this process")
        self.assert_no_output("map.svg")


if __name__ == "__main__":
    unittest.main()
