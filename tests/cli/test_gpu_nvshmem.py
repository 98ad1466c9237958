"""`--backend nvshmem`: processes with a GPU each, or that share them, started by nothing but an address, on one logical
node and on several. The files are those of the CPU, byte for byte. Skipped, with the reason, where there is no GPU or
no NVSHMEM."""
import json
import os
import shutil
import subprocess
import unittest

from support import BINARY, FORMATS, MPIRUN_MAY, REDUCTIONS, FerryTestCase, ferry, make_layer, start


def start_by_mpirun(processes, *arguments):
    """The same by mpirun, whose output is that of all."""
    return [subprocess.run(["mpirun", "-np", str(processes), BINARY, *map(str, arguments)], capture_output=True,
                           text=True, timeout=300, env=os.environ | MPIRUN_MAY)]


def nvshmem_backend():
    """(GPUs, why it does not work) of the backend nvshmem, for a process that has its place."""
    (first,) = start(1, "info", "--json")
    report = json.loads(first.stdout)
    (backend,) = [backend for backend in report["backends"] if backend["backend"] == "nvshmem"]
    gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
    return (len(gpus), "") if backend["works"] else (0, backend["use"])


GPUS, WHY_NONE = nvshmem_backend()
RANKS = 4  # which share GPUs where these are fewer
NODES = (1, 2, 4)


@unittest.skipIf(GPUS == 0, WHY_NONE)
class SameFilesTestCase(FerryTestCase):
    def files_of(self, name, done):
        self.assert_done(done)
        report = json.loads(done.stdout)
        dumped = {path.relative_to(self.folder / name).as_posix(): path.read_bytes()
                  for path in (self.folder / name).rglob("*.npy")}
        counts = {key: report[key] for key in ("rows", "messages", "dispatch_bytes", "wire_bytes", "non_finite_blocks")}
        return (self.folder / f"{name}.npy").read_bytes(), dumped, counts

    def check(self, nodes, *options, run=start, **arrays):
        common = [*self.save(make_layer(**arrays)), *options, "--ranks", RANKS, "--share-gpus", "--json"]

        def written(name):
            return ["--output", self.folder / f"{name}.npy", "--dump", self.folder / name]

        with self.subTest(nodes=nodes, options=options, **arrays):
            done = run(RANKS, "layer", "--backend", "nvshmem", "--nodes", nodes, *common, *written("nvshmem"))
            for other in done[1:]:
                self.assertEqual((other.returncode, other.stdout), (0, ""), other.stderr)
            self.assertEqual(json.loads(done[0].stdout)["backend"], "nvshmem")
            self.assertEqual(self.files_of("nvshmem", done[0]),
                             self.files_of("cpu", ferry("layer", "--backend", "cpu", *common, *written("cpu"))))

    def test_formats(self):
        for number, format_name in enumerate(FORMATS):
            self.check(NODES[number % len(NODES)], "--format", format_name, "--combine", REDUCTIONS[number % 2],
                       tokens=75, hidden=160, shared_inter=40 * (number % 3 == 0))

    def test_nodes(self):
        for nodes in NODES:
            self.check(nodes, "--format", "fp8_block128", tokens=1500, hidden=2880, experts=32, top_k=4, inter=8)

    @unittest.skipIf(shutil.which("mpirun") is None, "mpirun was not found")
    def test_mpirun(self):
        for nodes in NODES:
            self.check(nodes, "--format", "fp8_block128", run=start_by_mpirun, tokens=75, hidden=160)

    def test_few_tokens(self):
        for tokens in (0, 1):
            self.check(RANKS, tokens=tokens)


@unittest.skipIf(GPUS == 0, WHY_NONE)
class CommandsTestCase(FerryTestCase):
    def test_verify(self):
        first, *_ = start(RANKS, "verify", "--backend", "nvshmem", "--share-gpus", "--nodes", NODES[-1], "--json",
                          "--case", "reports/")
        report = json.loads(first.stdout)
        self.assertGreater(report["ok"], 0)
        self.assertEqual(report["failed"], 0)

    def test_other_numbers_of_ranks_are_refused(self):
        inputs = self.save(make_layer())
        first, *others = start(2, "layer", "--backend", "nvshmem", "--ranks", 3, *inputs, "--output",
                               self.folder / "y.npy")
        for done in [first, *others]:  # no launcher started them: each says it
            self.assert_refused(done, 2, "--ranks 3", "2 processes")

    def test_bench(self):
        """What a record holds. Nothing here looks at a time."""
        ranks = min(GPUS, RANKS)
        first, *_ = start(ranks, "bench", "--backend", "nvshmem", "--ranks", ranks, "--nodes", ranks,
                          "--iterations", 3, "--hidden", 256, "--experts", 8, "--top-k", 2, "--tokens", 9,
                          "--baseline", "--json")
        self.assertEqual(first.returncode, 0, first.stderr)
        record = json.loads(first.stdout)
        self.assertEqual((record["backend"], record["nodes"]), ("nvshmem", ranks))
        self.assertIn("ratio_to_baseline", record)

    def test_a_process_without_a_place_is_refused(self):
        self.assert_refused(ferry("verify", "--backend", "nvshmem"), 1, "--backend nvshmem", "no launcher", "mpirun")


@unittest.skipIf(GPUS != 0, "there are GPUs, and NVSHMEM")
class NoNvshmemTestCase(FerryTestCase):
    def test_refusal_says_what_is_missing(self):
        arrays = self.save(make_layer())
        for arguments in (["demo"], ["verify"], ["bench"], ["layer", "--ranks", 2, *arrays, "--output",
                                                 self.folder / "y.npy"]):
            with self.subTest(arguments=arguments[0]):
                self.assert_refused(ferry(*arguments, "--backend", "nvshmem"), 1, "--backend nvshmem", WHY_NONE,
                                    "--backend cpu works")
        self.assert_no_output()

    def test_info_answers_all_the_same(self):
        done = ferry("info", "--backend", "nvshmem", "--model", "mixtral-8x7b", "--json")
        self.assert_done(done)
        self.assertIn(WHY_NONE, json.loads(done.stdout)["why_not_here"])


if __name__ == "__main__":
    unittest.main()
