"""`ferry info`, `verify`, and what all commands share."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from support import BINARY, FORMATS, FerryTestCase, ferry


class HelpTestCase(FerryTestCase):
    def test_help_and_version(self):
        for arguments in (["--help"], ["layer", "--help"], ["codec", "encode", "--help"], ["demo", "--help"],
                          ["info", "--help"], ["verify", "--help"], ["bench", "--help"]):
            with self.subTest(arguments=arguments):
                done = ferry(*arguments)
                self.assert_done(done)
                self.assertIn("Usage:", done.stdout)
        self.assertRegex(ferry("--version").stdout, r"^ferry \d+\.\d+\.\d+\n$")


class InfoTestCase(FerryTestCase):
    def info(self, *options):
        done = ferry("info", "--json", *options)
        self.assert_done(done)
        return json.loads(done.stdout)

    def test_machine(self):
        report = self.info()
        self.assertGreaterEqual(report["devices"][0]["cores"], 1)
        self.assertGreater(report["devices"][0]["memory_bytes"], 0)
        self.assertEqual([b["backend"] for b in report["backends"]], ["cpu", "processes", "shmem", "cuda", "nvshmem"])
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

    def test_memory_of_what_the_exchange_is_made_for(self):
        shape = ("--ranks", 4, "--experts", 64, "--top-k", 8, "--tokens", 512, "--hidden", 1024)
        bytes_of = lambda *options: self.info(*shape, *options)["exchange_memory_bytes"]
        self.assertEqual(bytes_of("--reduction", "exact"), bytes_of("--combine", "exact"))
        self.assertEqual(bytes_of("--reduction", "by_rank"), bytes_of())
        self.assertGreaterEqual(bytes_of("--reduction", "either"), bytes_of("--combine", "exact"))
        self.assertEqual(bytes_of("--reduction", "either", "--combine", "exact"), bytes_of("--reduction", "either"))
        self.assertAlmostEqual(bytes_of("--reduction", "either") / bytes_of("--combine", "exact"), 1, delta=0.01)
        messages = lambda *options: self.info(*shape, *options)["exchange_memory"][0]["bytes"]
        self.assertEqual(messages("--message-copies", 4), 2 * messages())
        said = self.info(*shape, "--reduction", "either", "--message-copies", 4)["shape"]
        self.assertEqual((said["combine"], said["reduction"], said["message_copies"]), ("by_rank", "either", 4))
        text = ferry("info", *shape, "--reduction", "either", "--message-copies", 4).stdout
        for words in (", bf16, either, results in bf16", "of four rounds"):
            self.assertIn(words, " ".join(text.split()))

    def test_the_longest_tokens(self):
        hidden = 2**31 - 32
        report = self.info("--ranks", 2, "--experts", 8, "--top-k", 2, "--tokens", 1, "--hidden", hidden, "--format",
                           "fp8_block128", "--result-format", "fp8_block128")
        row = hidden + 4 * -(-hidden // 128)  # payload and scales
        self.assertEqual(report["shape"]["message_bytes"], row)
        (slots,) = (region["bytes"] for region in report["exchange_memory"] if region["region"] == "result slots")
        self.assertAlmostEqual(slots, 2 * row, delta=256)

    def test_outputs_of_uneven_experts(self):
        report = self.info("--ranks", 4, "--experts", 10, "--top-k", 3, "--tokens", 16, "--hidden", 64)
        self.assertEqual([(o["ranks"], o["experts"], o["row_capacity"]) for o in report["outputs"]],
                         [("0 to 1", 3, 4 * 16 * 3), ("2 to 3", 2, 4 * 16 * 2)])

    def test_named_model(self):
        shape = self.info("--model", "deepseek-v3", "--ranks", 8)["shape"]
        self.assertEqual((shape["hidden"], shape["experts"], shape["top_k"], shape["ranks"]), (7168, 256, 8, 8))
        for options, head in (([], "deepseek-v3: ranks=4"), (["--hidden", 64], "deepseek-v3 with --hidden 64: ranks=4")):
            self.assertIn(head, ferry("info", "--model", "deepseek-v3", *options).stdout)

    def test_refusals(self):
        self.assert_refused(ferry("info", "--model", "gpt-1"), 2, "--model gpt-1", "deepseek-v3")
        self.assert_refused(ferry("info", "--ranks", 4), 2, "missing are --experts, --top-k, --hidden")
        self.assert_refused(ferry("info", "--experts", 8, "--top-k", 2), 2, "missing is --hidden")
        self.assert_refused(ferry("info", "--model", "mixtral-8x7b", "--ranks", 9), 2, "--ranks 9", "number of experts, 8")
        self.assert_refused(ferry("info", "--model", "mixtral-8x7b", "--hidden", 100), 2, "--hidden 100", "multiple of 32")
        self.assert_refused(ferry("info", "--backend", "cuda2"), 2, "--backend", "cuda2")
        self.assert_refused(ferry("info", "--experts", 2_000_000_000, "--top-k", 2, "--hidden", 64), 2,
                            "--experts 2000000000: must be at most 1073741823 where --top-k is 2")

    def test_names_of_what_is_missing_line_up(self):
        text = ferry("info").stdout
        if "Not here, and what to do:" in text:
            lines = text[text.index("Not here, and what to do:"):].splitlines()[1:]
            self.assertEqual(len({re.match(r"  \w+ +| +", line).end() for line in lines}), 1, lines)

    def test_what_an_alignment_is(self):
        self.assertIn("An expert's first row is at a multiple of this", " ".join(ferry("info", "--help").stdout.split()))

    def test_zero_is_refused(self):
        for option in ("--ranks", "--tokens", "--experts", "--top-k", "--hidden"):
            for value in (0, -1):
                with self.subTest(option=option, value=value):
                    self.assert_refused(ferry("info", "--model", "deepseek-v3", option, value), 2,
                                        f"{option} {value}: must be 1 ")

    def test_what_this_build_lacks(self):
        """CMake found nvcc, or found none: only then is it to be installed."""
        cache = (pathlib.Path(BINARY).parent / "CMakeCache.txt").read_text()
        for backend in self.info()["backends"]:
            if backend["use"].startswith("this build has no NVSHMEM ranks"):
                self.assertRegex(backend["use"], "FERRY_NVSHMEM=OFF|docs/multi-host-gpus.md")
            if backend["backend"] == "cuda" and backend["use"].startswith("this build has no GPU ranks"):
                self.assertIn("./dev build cuda", backend["use"])
                self.assertEqual("install the CUDA toolkit" in backend["use"], "FERRY_CUDA:STRING=OFF" not in cache and
                                 not re.search(r"^FERRY_NVCC:FILEPATH=/", cache, re.MULTILINE), backend["use"])

    def test_layouts_that_no_format_has(self):
        takes = ("mxfp8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4")
        for format_name in FORMATS:
            done = ferry("info", "--model", "kimi-k2", "--tiled-scales", "--format", format_name)
            if format_name in takes:
                self.assert_done(done)
            else:
                self.assert_refused(done, 2, f"--tiled-scales: --format {format_name} has no scales", "mxfp8")
        for alignment in [*range(129), -1, "many", "8x", 1 << 40]:
            done = ferry("info", "--model", "kimi-k2", "--alignment", alignment)
            if alignment in (0, 1, 4, 8, 16, 32, 64, 128):
                self.assert_done(done)
            else:
                self.assert_refused(done, 2, f"--alignment {alignment}: must be 0 (that of the format), 1, 4, 8")

    def test_shapes_of_other_machines(self):
        """Any number of ranks of any backend; the answer says whether this machine, or any, could run it."""
        for backend in ("cpu", "processes", "shmem", "cuda", "nvshmem"):
            for ranks in (1, 64, 256):
                with self.subTest(backend=backend, ranks=ranks):
                    report = self.info("--model", "deepseek-v3", "--ranks", ranks, "--backend", backend)
                    self.assertEqual((report["shape"]["ranks"], report["planned_backend"]), (ranks, backend))
                    self.assertEqual(report["runs_here"], report["why_not_here"] == "")
                    self.assertEqual(report["why_nowhere"] != "", not backend.endswith("shmem") and ranks > 72)
                    if backend == "cpu":
                        self.assertEqual(report["runs_here"], ranks <= 72)
                    names = [region["region"] for region in report["exchange_memory"]]
                    self.assertEqual("sent messages" in names, backend in ("shmem", "nvshmem"))
                    for region in report["exchange_memory"][:-1]:
                        self.assertNotEqual(region["what"], "", region["region"])
        self.assertEqual(self.info("--model", "deepseek-v3", "--ranks", 256)["planned_backend"], "shmem")

    def test_limits_of_the_library(self):
        for backend in ("cpu", "processes", "cuda"):
            for ranks in (72, 73):
                text = ferry("info", "--model", "deepseek-v3", "--backend", backend, "--ranks", ranks).stdout
                self.assertEqual(f"On no machine: backend {backend}: a world of " in text, ranks == 73, text)
                self.assertEqual("What follows is a plan only." in " ".join(text.split()), ranks == 73, text)
                if ranks == 73:
                    self.assertNotIn("Not on this machine", text)

    def test_memory_of_all_ranks_and_of_nvshmem(self):
        shape = ["--model", "deepseek-v3", "--ranks", 48, "--tokens", 512]  # 256 experts: 16 ranks with 6, 32 with 5
        report = self.info(*shape, "--backend", "cpu")
        more, fewer = report["outputs"]
        tensors = lambda each: each["output_bytes"] + each["result_bytes"]
        self.assertEqual(report["all_ranks_bytes"],
                         48 * report["exchange_memory_bytes"] + 16 * tensors(more) + 32 * tensors(fewer))
        self.assertRegex(ferry("info", *shape, "--backend", "cpu").stdout, r"All 48 ranks of one process together .*available")
        report = self.info(*shape, "--backend", "nvshmem")
        self.assertEqual(report["gpu_state_bytes"], 48 * 512 * (2 * 8 * 8 + 1))
        size = int(report["nvshmem_symmetric_size"].removesuffix("M")) << 20
        self.assertTrue(0 <= size - report["exchange_memory_bytes"] - (256 << 20) < 1 << 20)
        text = " ".join(ferry("info", *shape, "--backend", "nvshmem").stdout.split())
        self.assertIn(f"NVSHMEM_SYMMETRIC_SIZE must be {report['nvshmem_symmetric_size']}", text)
        self.assertIn("cuda_state_bytes", text)
        report = self.info(*shape, "--backend", "shmem")
        self.assertGreater(int(report["shmem_symmetric_heap_size"].removesuffix("M")) << 20, report["exchange_memory_bytes"])
        text = " ".join(ferry("info", *shape, "--backend", "shmem").stdout.split())
        self.assertIn(f"SHMEM_SYMMETRIC_HEAP_SIZE must be {report['shmem_symmetric_heap_size']} or more", text)

    def test_all_that_a_rank_needs(self):
        """The largest buffer is the experts' output: bf16 rows for combine."""
        ranks, tokens, hidden, top_k, local = 64, 4096, 7168, 8, 256 // 64
        report = self.info("--model", "deepseek-v3", "--ranks", ranks, "--tokens", tokens, "--format", "fp8_block128",
                           "--backend", "cuda")
        (each,) = report["outputs"]
        rows = each["row_capacity"]
        self.assertGreaterEqual(rows, ranks * tokens * min(top_k, local))
        self.assertEqual(each["result_bytes"], rows * hidden * 2)
        words = 4 * (local + 1) + 4 * local  # row_offsets and expert_ids
        self.assertEqual(each["output_bytes"], each["payload_bytes"] + each["scale_bytes"] + each["src_info_bytes"] + words)
        self.assertEqual(report["total_bytes"], report["exchange_memory_bytes"] + each["output_bytes"] +
                         each["result_bytes"] + report["gpu_state_bytes"])
        self.assertEqual(report["rows_of_even_routing"], tokens * top_k)

    def test_text(self):
        done = ferry("info", "--model", "mixtral-8x7b", "--ranks", 8)
        self.assert_done(done)
        for word in ("cores", "cpu", "total", "row capacity", "rows for combine", "In all ", "what it holds"):
            self.assertIn(word, done.stdout)
        self.assertLess(done.stdout.index("In all "), done.stdout.index("This machine: "))
        self.assertNotIn("Not here, and what to do", done.stdout)
        self.assertNotIn("Less memory: ", done.stdout)
        much = ferry("info", "--model", "deepseek-v3", "--ranks", 8, "--tokens", 4096).stdout
        self.assertRegex(" ".join(much.split()), r"Less memory: .* --tokens 512 ")
        self.assertEqual(done.stdout.count("`ferry info` without a shape"), 1)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 120, line)

    def test_memory_of_even_routing(self):
        """What the text says beside the worst case, for each kind of backend."""
        shape = ["--model", "deepseek-v3", "--ranks", 64, "--format", "fp8_block128"]
        for backend, tokens, says in (("cpu", 4096, ["memory only to rows that are written", "8 rounds of --tokens 512 "]),
                                      ("cuda", 4096, ["waits for the counts", "8 rounds of --tokens 512 "]),
                                      ("cuda", 512, ["waits for the counts", "same 2.85 GB of tensors in turn (docs"]),
                                      ("nvshmem", 512, ["waits for the counts"])):
            with self.subTest(backend=backend, tokens=tokens):
                arguments = [*shape, "--backend", backend, "--tokens", tokens]
                text = " ".join(ferry("info", *arguments).stdout.split())
                for words in says:
                    self.assertIn(words, text)
                report = self.info(*arguments)
                (each,) = report["outputs"]
                even = (report["exchange_memory_bytes"] + report["gpu_state_bytes"] + report["rows_of_even_routing"] /
                        each["row_capacity"] * (each["output_bytes"] + each["result_bytes"]))
                said = re.search(r": about ([0-9.]+) ([GM])B in all", text)
                self.assertIsNotNone(said, text)
                self.assertAlmostEqual(float(said.group(1)) * {"G": 1e9, "M": 1e6}[said.group(2)] / even, 1, delta=0.01)

    def test_formats_of_results(self):
        """The plan names the format, and every backend has all."""
        shape = ["--model", "deepseek-v3", "--ranks", 4]
        for backend in ("cpu", "shmem", "cuda", "nvshmem"):
            for results in ("bf16", "mxfp8"):
                with self.subTest(backend=backend, results=results):
                    arguments = [*shape, "--backend", backend, "--result-format", results]
                    why = self.info(*arguments)["why_nowhere"]
                    text = ferry("info", *arguments).stdout
                    self.assertIn(f", by_rank, results in {results}, backend {backend}; ", " ".join(text.split()))
                    self.assertEqual("\nOn no machine: " in text, why != "")
                    self.assertEqual(why, "")

    def test_models(self):
        models = self.info("--list-models")["models"]
        self.assertIn({"model": "deepseek-v3", "hidden": 7168, "experts": 256, "top_k": 8, "inter": 2048}, models)
        text = ferry("info", "--list-models").stdout
        for model in models:
            self.assertIn(model["model"], text)


class VerifyTestCase(FerryTestCase):
    def test_quick_cases(self):
        done = ferry("verify", "--quick", "--json", "--case", "reports/")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertGreater(report["ok"], 0)
        self.assertEqual(report["failed"], 0)
        self.assertEqual(len(report["cases"]), report["ok"] + report["skipped"])

    QUICK = ("verify", "--backend", "cpu", "--quick", "--case", "reports/")

    def test_a_line_for_each_case(self):
        done = ferry(*self.QUICK)
        self.assert_done(done)
        rows = [line for line in done.stdout.splitlines() if line.startswith("cpu ")]
        self.assertEqual(len(rows), len(json.loads(ferry(*self.QUICK, "--json").stdout)["cases"]))
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 120, line)

    def test_quiet(self):
        done = ferry(*self.QUICK, "--quiet")
        self.assert_done(done)
        self.assertRegex(done.stdout, r"^Backend cpu \(threads of this process\): \d+ ok, 0 skipped, 0 failed\.\n")
        self.assertLessEqual(done.stdout.count("\n"), 2)

    def interrupted(self, *options):
        """Standard output of a run that was interrupted soon after its first case had begun, as its log says."""
        process = subprocess.Popen([BINARY, "verify", "--backend", "cpu", *options], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=os.environ | {"FERRY_DEBUG": "info"})
        process.stderr.readline()
        first = "" if "--json" in options else process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)
        return first + text

    def test_interrupted(self):
        text = self.interrupted()
        done, of = map(int, re.search(r"Interrupted .*: (\d+) of (\d+) cases were done", text).groups())
        self.assertEqual(done, len([line for line in text.splitlines() if line.startswith("cpu ")]))
        self.assertLess(done, of)
        self.assertIn(f"{done} ok, 0 skipped, 0 failed", text)
        report = json.loads(self.interrupted("--json"))
        self.assertEqual(len(report["cases"]), report["ok"])
        self.assertIn("interrupted", report)

    def test_list_and_refusals(self):
        self.assertIn("reports/memory_use", ferry("verify", "--list").stdout)
        self.assertIn("note: --quiet has no effect beside --list", ferry("verify", "--list", "-q").stderr)
        self.assert_refused(ferry("verify", "--case", "no such"), 2, "--case no such", "--list")


if __name__ == "__main__":
    unittest.main()
