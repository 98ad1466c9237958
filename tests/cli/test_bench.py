"""`ferry bench`: the bytes it counts, the records it writes, and what it refuses. Nothing here looks at a time."""
import json
import os
import resource
import signal
import subprocess
import time
import unittest

from support import BINARY, SANITIZED, FerryTestCase, ferry

FEW = ["--backend", "cpu", "--cache", 4, "--iterations", 3, "--json"]


def few_gigabytes():
    """Of address space, in a process that is to need more: it can take no memory that others need."""
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def encoded_bytes(format_name, hidden):
    """Payload and scales of a row, as docs/formats.md has them."""
    return {"bf16": 2 * hidden, "mxfp4": hidden // 2 + hidden // 32, "fp8_block128": hidden + 4 * -(-hidden // 128),
            "nvfp4": hidden // 2 + hidden // 16}[
        format_name]


class BenchTestCase(FerryTestCase):
    def records(self, *arguments, few=FEW):
        done = ferry("bench", *arguments, *few)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_no_iterations_are_refused(self):
        done = ferry("bench", "--iterations", 0)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--iterations", done.stderr)

    def test_bytes_where_every_token_names_every_expert(self):
        ranks, experts, hidden, n = 3, 7, 160, 5
        row = 2 * hidden
        for format_name in ("bf16", "mxfp4", "fp8_block128"):
            for reduction in ("by_rank", "exact"):
                with self.subTest(format=format_name, reduction=reduction):
                    (record,) = self.records("--ranks", ranks, "--experts", experts, "--top-k", experts, "--hidden",
                                             hidden, "--tokens", n, "--format", format_name, "--combine", reduction)
                    encoded = encoded_bytes(format_name, hidden)
                    sent = ranks * n * ranks
                    rows = ranks * n * experts
                    expected = {
                        "tokens": ranks * n * row,
                        "messages": sent * (-(-encoded // 16) * 16),
                        "rows": rows * encoded,
                        "results": rows * row,
                        "partials": (rows if reduction == "exact" else sent) * row,
                        "output": ranks * n * row,
                    }
                    expected["moved"] = sum(expected.values()) + expected["messages"] + expected["partials"]
                    self.assertEqual(record["bytes"], expected)

    def test_bytes_of_the_orders_of_rows(self):
        records = self.records("--ranks", 2, "--experts", 6, "--top-k", 6, "--hidden", 64, "--tokens", 5, "--rows",
                               "by_expert,by_source,padded,in_place")
        rows = {record["policy"]["rows"]: record["bytes"] for record in records}
        row = 2 * 64
        for order, copied, results in (("by_expert", 60, 60), ("by_source", 20, 20), ("padded", 60, 60),
                                       ("in_place", 0, 60)):
            self.assertEqual((rows[order]["rows"], rows[order]["results"]), (copied * row, results * row), order)

    def test_bytes_of_the_formats_of_results(self):
        records = self.records("--ranks", 2, "--experts", 6, "--top-k", 6, "--hidden", 256, "--tokens", 5,
                               "--result-format", "bf16,f32,fp8_block128,nvfp4")
        partials = {record["policy"]["results"]: record["bytes"]["partials"] for record in records}
        results = 2 * 2 * 5  # from both ranks, for each token of both
        self.assertEqual(partials, {"bf16": results * 512, "f32": results * 1024, "fp8_block128": results * (256 + 16),
                                    "nvfp4": results * (128 + 16 + 16)})

    def test_encoded_tokens_and_replays(self):
        shape = ("--ranks", 2, "--experts", 6, "--top-k", 3, "--hidden", 160, "--tokens", 5, "--operation",
                 "dispatch,combine,pair")
        for given in (("--encoded",), ("--replay", "--rows", "padded"), ("--encoded", "--replay", "--combine", "exact")):
            with self.subTest(given=given):
                for record in self.records(*shape, "--format", "bf16,fp8_block128,nvfp4", *given):
                    encoded = "--encoded" in given
                    row = encoded_bytes(record["format"], 160) if encoded else 2 * 160
                    self.assertEqual(record["bytes"]["tokens"], 2 * 5 * row)
                    self.assertEqual(record["policy"]["given"], "encoded" if encoded else "bf16")
                    self.assertEqual(record["policy"]["dispatch"], "replay" if "--replay" in given else "fresh")

    def test_what_replays_send_is_without_the_first_rounds(self):
        """Every token names every expert, so that all rounds send the same."""
        shape = ("--ranks", 2, "--experts", 4, "--top-k", 4, "--hidden", 64, "--tokens", 5)
        sent = lambda iterations, *options: self.records(
            *shape, *options, few=["--backend", "cpu", "--cache", 4, "--json", "--iterations", iterations])[0]["sent"]
        replayed = [sent(iterations, "--replay") for iterations in (11, 1000)]
        self.assertEqual(*replayed)
        self.assertLess(replayed[0]["bytes"], sent(11)["bytes"])  # by the routing

    def test_an_exchange_whose_combines_choose(self):
        shape = ("--ranks", 2, "--experts", 6, "--top-k", 6, "--hidden", 256, "--tokens", 5)
        records = self.records(*shape, "--reduction", "by_rank,exact,either")
        said = [(record["policy"]["combine"], record["policy"]["reduction"]) for record in records]
        self.assertEqual(said, [("by_rank", "by_rank"), ("exact", "exact"), ("by_rank", "either")])
        by_rank, exact, either = (record["bytes"]["partials"] for record in records)
        self.assertEqual((by_rank, exact, either), (2 * 2 * 5 * 512, 2 * 6 * 5 * 512, by_rank))
        for given in (("--replay",), ("--rows", "padded"), ()):
            records = self.records(*shape, "--reduction", "either", "--combine", "by_rank,exact", *given)
            self.assertEqual([record["bytes"]["partials"] for record in records], [by_rank, exact], given)

    def test_message_copies(self):
        shape = ("--ranks", 2, "--experts", 6, "--top-k", 6, "--hidden", 256, "--tokens", 5, "--rows", "in_place")
        two, four = self.records(*shape, "--message-copies", "2,4")
        self.assertEqual((two["policy"]["message_copies"], four["policy"]["message_copies"]), (2, 4))
        more = four["memory_bytes_per_rank"] - two["memory_bytes_per_rank"]
        self.assertGreaterEqual(more, 2 * 2 * 5 * 512)

    def test_input_sets_take_twice_the_cache_that_is_given(self):
        for mebibytes in (1, 4):
            few = ["--backend", "cpu", "--cache", mebibytes, "--iterations", 3, "--json"]
            (record,) = self.records("--ranks", 2, "--hidden", 512, "--tokens", 128, few=few)
            self.assertEqual(record["hardware"]["last_level_cache_bytes"], mebibytes << 20)
            policy = record["policy"]
            self.assertEqual(policy["input_sets"], max(2, -(-2 * (mebibytes << 20) // policy["input_set_bytes"])))

    def test_what_is_not_asked_for_is_no_key(self):
        (record,) = self.records("--ranks", 2, "--hidden", 64, "--tokens", 2)
        self.assertFalse({"reduction", "message_copies"} & record["policy"].keys())

    def test_the_table_says_what_the_exchange_is_made_for(self):
        text = ferry("bench", *FEW[:-1], "--tokens", 2, "--hidden", 64, "--reduction", "either", "--message-copies", "2,4",
                     "--combine", "exact").stdout
        for word in ("exact of either", "copies"):
            self.assertIn(word, text)

    def test_the_table_says_how_tokens_come(self):
        text = ferry("bench", *FEW[:-1], "--tokens", 2, "--hidden", 64, "--encoded", "--replay").stdout
        for word in ("given", "encoded", "uniform, replayed"):
            self.assertIn(word, text)

    def test_operations_share_the_bytes(self):
        moved = {record["operation"]: record["bytes"]["moved"] for record in self.records(
            "--operation", "dispatch,combine,pair", "--ranks", 2, "--hidden", 64, "--experts", 8, "--top-k", 3,
            "--tokens", 9)}
        self.assertEqual(moved["dispatch"] + moved["combine"], moved["pair"])

    def test_parts_add_up_to_what_is_moved(self):
        for record in self.records("--operation", "dispatch,combine,pair", "--ranks", 2, "--hidden", 64, "--experts", 8,
                                   "--top-k", 3, "--tokens", 9):
            terms = [term.split() for term in record["moved_is"].split(" + ")]
            moved = sum(record["bytes"][term[-1]] * (int(term[0]) if len(term) == 2 else 1) for term in terms)
            self.assertEqual(moved, record["bytes"]["moved"], record["moved_is"])

    def test_footnotes(self):
        text = " ".join(ferry("bench", *FEW[:-1], "--tokens", 2, "--hidden", 64).stdout.split())
        for word in ("measured anew for each line", "less is where bytes that move stay in a cache",
                     "of fewer than 10 times it is the longest", "of fewer than 100 times it is the longest"):
            self.assertIn(word, text)

    def test_record_is_complete(self):
        (record,) = self.records("--ranks", 2, "--hidden", 64, "--experts", 8, "--top-k", 2, "--tokens", 4,
                                 "--routing", "zipf")
        for key in ("date", "version", "hardware", "command", "backend", "shape", "policy", "time_us", "wire"):
            self.assertIn(key, record)
        self.assertEqual(record["time_us"]["iterations"], 3)
        self.assertEqual(record["policy"]["routing"], "zipf")
        self.assertIn("bench --ranks 2", record["command"])
        info = ferry("info", "--ranks", 2, "--hidden", 64, "--experts", 8, "--top-k", 2, "--tokens", 4, "--json")
        regions = {region["region"]: region["bytes"] for region in json.loads(info.stdout)["exchange_memory"]}
        self.assertEqual(record["memory_bytes_per_rank"], regions["total"])

    def test_models_and_codecs(self):
        (record,) = self.records("--model", "gpt-oss-20b", "--tokens", 1)
        self.assertEqual(record["shape"], {"ranks": 2, "experts": 32, "top_k": 4, "hidden": 2880, "tokens": 1,
                                           "model": "gpt-oss-20b"})
        (record,) = self.records("--operation", "encode", "--format", "mxfp4", "--hidden", 96, "--tokens", 2)
        self.assertEqual(record["bytes"], {"bf16": 2 * 2 * 96, "encoded": 2 * encoded_bytes("mxfp4", 96)})

    def test_output_is_appended(self):
        path = self.folder / "lines.jsonl"
        for _ in range(2):
            self.records("--ranks", 2, "--hidden", 64, "--experts", 8, "--top-k", 2, "--tokens", "2,3", "--output", path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([line["shape"]["tokens"] for line in lines], [2, 3, 2, 3])

    def test_the_table_comes_though_the_disk_is_full(self):
        done = ferry("bench", *FEW[:-1], "--tokens", "2,3", "--hidden", 64, "--output", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("median us", " ".join(done.stdout.split()))
        why = "--output /dev/full: cannot be written: No space left on device"
        self.assertEqual(done.stderr.count(f"ferry: note: {why}; what is measured is still printed\n"), 1)  # at the first line
        self.assertIn(f"ferry: {why}\n", done.stderr)

    # More memory than there is; refused before any of it is touched.
    TOO_MUCH = ("--ranks", 2, "--hidden", 65536, "--experts", 8, "--top-k", 2)

    def test_lines_before_one_that_fails_are_printed(self):
        path = self.folder / "lines.jsonl"
        done = ferry("bench", *FEW[:-1], *self.TOO_MUCH, "--tokens", "2,16777215", "--output", path)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"\npair .* 2 ")
        self.assertTrue(done.stdout.endswith(f"\n1 line of JSON appended to {path}\nFailed with 1 of 2 lines done.\n"))
        self.assertIn("choose fewer tokens or ranks\n", done.stderr)
        done = ferry("bench", *FEW, *self.TOO_MUCH, "--tokens", "2,16777215")
        self.assertEqual((done.returncode, done.stdout.count("\n")), (1, 1))
        self.assert_refused(ferry("bench", *FEW[:-1], *self.TOO_MUCH, "--tokens", 16777215), 1, "choose fewer tokens")

    def test_codecs_that_need_too_much_memory_are_refused(self):
        for operation in ("encode", "decode"):
            done = ferry("bench", *FEW, *self.TOO_MUCH, "--tokens", 16777215, "--operation", operation,
                         preexec_fn=few_gigabytes)
            self.assert_refused(done, 1, "GB of memory, but", "choose fewer tokens")

    @unittest.skipIf(SANITIZED, "a sanitizer takes more address space than the limit of this test")
    def test_the_wire_counts_as_memory(self):
        """Every rank copies 8 MiB or more from and to buffers of its own."""
        done = ferry("bench", *FEW, "--ranks", 64, "--workers", 8, "--hidden", 64, "--tokens", 1, preexec_fn=few_gigabytes)
        self.assert_refused(done, 1, "GB of memory, but", "choose fewer tokens or ranks")

    def test_names_that_are_no_utf_8(self):
        path = os.fsencode(self.folder) + b"/r\xe9.jsonl"
        done = subprocess.run([BINARY, "bench", *map(str, FEW), "--hidden", "64", "--tokens", "2", "--output", path],
                              capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            self.assertIn("/r\ufffd.jsonl", json.loads(file.read())["command"])

    def test_what_takes_no_line_is_said_before_the_first_one_is_measured(self):
        endless = ["bench", "--backend", "cpu", "--tokens", "2", "--hidden", "64", "--seconds", "600", "--cache", "4",
                   "--output"]
        with subprocess.Popen([BINARY, *endless, "/dev/full"], stderr=subprocess.PIPE, text=True) as process:
            first = process.stderr.readline()
            process.kill()
        self.assertEqual(first, "ferry: note: --output /dev/full: cannot be written: No space left on device; what is "
                                "measured is still printed\n")

    def test_codecs_are_measured_once(self):
        done = ferry("bench", *FEW[:-1], "--operation", "encode", "--tokens", 4, "--hidden", 64, "--ranks", "2,4",
                     "--workers", 3, "--combine", "exact", "--reduction", "either", "--message-copies", 4)
        self.assertEqual(done.stdout.count("GB/s of bf16\n"), 1)
        self.assertIn("note: --ranks, --workers, --combine, --reduction, --message-copies have no effect: --operation names "
                      "codecs only", done.stderr)

    def test_table(self):
        done = ferry("bench", "--ranks", 2, "--hidden", 64, "--experts", 8, "--top-k", 2, "--tokens", 4, "--operation",
                     "pair,encode", *FEW[:-1])
        self.assertEqual(done.returncode, 0, done.stderr)
        for column in ("n", "min us", "moved", "wire GB/s", "floor us", "x floor", "bound us", "x bound",
                       "GB/s of bf16"):
            self.assertIn(f"{column}: ", " ".join(done.stdout.split()))
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 120, line)

    def test_baseline(self):
        done = ferry("bench", "--ranks", 2, "--hidden", 64, "--experts", 8, "--top-k", 2, "--tokens", 4, "--baseline",
                     *FEW, env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"})  # Open MPI leaks when it ends
        if done.returncode == 0:
            record = json.loads(done.stdout)
            self.assertEqual(record["baseline"]["processes"], 2)
            self.assertEqual(record["baseline"]["time_us"]["iterations"], 3)
        else:
            self.assert_refused(done, 1, "--baseline needs", "install")

    def test_baseline_without_mpirun(self):
        done = ferry("bench", "--backend", "cpu", "--baseline", "--tokens", 1, env={"PATH": str(self.folder)})
        self.assert_refused(done, 1, "--baseline needs", "openmpi-bin")


class InterruptedTestCase(FerryTestCase):
    """Ctrl-C when the first of three lines is measured."""

    MEASURED = ("--backend", "cpu", "--hidden", "64", "--experts", "8", "--top-k", "2", "--tokens", "2,3,4", "--cache", "4",
                "--seconds", "1")
    # The first line takes a moment, the next ones seconds.
    SIMULATED = ("--simulate", "--ranks", "2048", "--experts", "2048", "--top-k", "2", "--tokens", "2,4000,4001")

    def interrupted(self, *options):
        path = self.folder / "lines.jsonl"
        process = subprocess.Popen([BINARY, "bench", "--output", path, *options], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (path.exists() and path.read_text().endswith("\n")):
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)  # 130 in a shell
        tokens = [json.loads(line)["shape"]["tokens"] for line in path.read_text().splitlines()]
        self.assertIn(len(tokens), (1, 2))  # more than one where this test was held up
        path.unlink()
        return tokens, said, error

    def test_the_table_has_what_was_measured(self):
        tokens, said, _ = self.interrupted(*self.MEASURED)
        appended = f"{len(tokens)} line{'s' * (len(tokens) - 1)} of JSON appended to {self.folder / 'lines.jsonl'}"
        self.assertTrue(said.endswith(f"\n{appended}\nInterrupted with {len(tokens)} of 3 lines done.\n"), said)
        lines = said.splitlines()
        rule = next(i for i, line in enumerate(lines) if line.startswith("----"))
        for n, line in zip(tokens, lines[rule + 1:]):
            self.assertRegex(line, rf"^pair .* {n} ")
        self.assertIn("min us", " ".join(said.split()))

    def test_what_was_simulated(self):
        tokens, said, _ = self.interrupted(*self.SIMULATED)
        self.assertTrue(said.endswith(f"\nInterrupted with {len(tokens)} of 3 lines done.\n"), said)
        self.assertIn("nodes of 8 ranks", said)

    def test_records_stay_records(self):
        tokens, said, error = self.interrupted("--json", *self.MEASURED)
        self.assertEqual([json.loads(line)["shape"]["tokens"] for line in said.splitlines()], tokens)
        self.assertIn(f"ferry: note: interrupted with {len(tokens)} of 3 lines done\n", error)


class RefusalTestCase(FerryTestCase):
    def test_bad_use(self):
        for arguments, words in (
            (["--tokens", 0], ["--tokens"]),
            (["--top-k", 65], ["--top-k 65: must be 1 to 32"]),
            (["--hidden", 100], ["--hidden 100: must be a positive multiple of 32"]),
            (["--ranks", 9, "--experts", 8], ["--ranks 9", "number of experts, 8: every"]),
            (["--ranks", 65], ["--ranks 65", "number of experts, 64 (the default of --experts): every"]),
            (["--model", "all", "--ranks", 9], ["--ranks 9", "8 (of --model mixtral-8x7b): every"]),
            (["--rows", "by_source", "--combine", "exact"], ["--rows by_source does not go with --combine exact: a row"]),
            (["--reduction", "either", "--rows", "by_source", "--combine", "exact"],
             ["--rows by_source does not go with --combine exact: a row"]),
            (["--reduction", "either,by_rank", "--combine", "exact"], ["--combine exact", "--reduction by_rank", "either"]),
            (["--reduction", "sum"], ["--reduction sum: must be one of by_rank, exact, either"]),
            (["--combine", "either"], ["--combine either: must be one of by_rank, exact"]),
            (["--message-copies", "2,3"], ["--message-copies 3: must be one of 2, 4"]),
            (["--format", "fp5"], ["--format", "fp5"]),
            (["--operation", "guess"], ["--operation", "guess"]),
            (["--model", "deepseek-v9"], ["--model", "deepseek-v9"]),
            (["--model", "kimi-k2", "--experts", 8], ["--model", "--experts"]),
            (["--backend", "cpu", "--max-blocks", 24], ["--max-blocks", "GPUs"]),
            (["--model", "all", "--hidden", 64], ["--model", "--hidden"]),
            (["--backend", "cpu", "--ranks", 73, "--experts", 73], ["--ranks", "72"]),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(ferry("bench", *arguments), 2, *words)


if __name__ == "__main__":
    unittest.main()
