"""`--backend cuda`: the files are those of the CPU, byte for byte. Skipped, with the reason, where there is no GPU."""
import itertools
import json
import os
import shutil
import subprocess
import unittest

import numpy as np

from support import BINARY, FORMATS, MPIRUN_MAY, REDUCTIONS, FerryTestCase, ferry, free_port, make_layer


def cuda_backend():
    """(most ranks, why there are none) of the backend cuda."""
    report = json.loads(ferry("info", "--json").stdout)
    (backend,) = [backend for backend in report["backends"] if backend["backend"] == "cuda"]
    gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
    return (len(gpus), "") if backend["works"] else (0, backend["use"])


GPUS, WHY_NONE = cuda_backend()


@unittest.skipIf(GPUS == 0, WHY_NONE)
class SameFilesTestCase(FerryTestCase):
    def files_of(self, backend, options, ranks):
        dump = self.folder / f"{backend}_{ranks}"  # a dump of fewer ranks in the place of one of more is refused
        done = ferry("layer", "--backend", backend, "--share-gpus", "--ranks", ranks, *options, "--output",
                     self.folder / f"{backend}.npy", "--dump", dump, "--json")
        self.assert_done(done)
        report = json.loads(done.stdout)
        self.assertEqual(report["backend"], backend)
        dumped = {path.relative_to(dump).as_posix(): path.read_bytes() for path in dump.rglob("*.npy")}
        counts = {name: report[name] for name in ("rows", "messages", "dispatch_bytes", "wire_bytes",
                                                  "non_finite_blocks")}
        return (self.folder / f"{backend}.npy").read_bytes(), dumped, counts

    def check(self, *options, **arrays):
        inputs = self.save(make_layer(**arrays))
        for ranks in (1, 2, 3, 4):
            with self.subTest(options=options, ranks=ranks, **arrays):
                self.assertEqual(self.files_of("cuda", [*inputs, *options], ranks),
                                 self.files_of("cpu", [*inputs, *options], ranks))

    def test_formats_and_reductions(self):
        for format_name in FORMATS:
            for reduction in REDUCTIONS:
                self.check("--format", format_name, "--combine", reduction, tokens=75, hidden=160)

    def test_combines_that_choose(self):
        for reduction in REDUCTIONS:
            self.check("--reduction", "either", "--combine", reduction, "--message-copies", 4, tokens=75, hidden=160)

    def test_shared_expert(self):
        for format_name in FORMATS:
            self.check("--format", format_name, tokens=53, shared_inter=40)

    def test_few_tokens(self):
        for tokens in (0, 1, 3):
            self.check(tokens=tokens)

    def test_input_scale(self):
        self.check("--format", "nvfp4", "--input-scale", "37.5")

    def test_larger_layer(self):
        self.check("--format", "fp8_block128", tokens=1500, hidden=2880, experts=32, top_k=4, inter=8)

    def test_rounds(self):
        arrays = self.save(make_layer(tokens=4096 * GPUS + 9, hidden=32, experts=8, top_k=2, inter=8))
        outputs = []
        for backend in ("cuda", "cpu"):
            self.assert_done(ferry("layer", "--backend", backend, "--ranks", GPUS, *arrays, "--output",
                                   self.folder / "y.npy", "--check"))
            outputs.append((self.folder / "y.npy").read_bytes())
        self.assertEqual(*outputs)


def why_no_experts():
    """Why experts cannot run on the GPUs; empty where they can."""
    if GPUS == 0:
        return WHY_NONE
    done = ferry("layer", "--backend", "cuda", "--ranks", 1, "--experts-on", "gpu", "--tokens", "none", "--topk-ids",
                 "none", "--topk-weights", "none", "--gate-up", "none", "--down", "none", "--output", "none.npy")
    return done.stderr if "cuBLAS" in done.stderr else ""


WHY_NO_EXPERTS = why_no_experts()


@unittest.skipIf(WHY_NO_EXPERTS != "", WHY_NO_EXPERTS)
class ExpertsOnGpusTestCase(FerryTestCase):
    """`--experts-on gpu`: within the bound of the check, near the host's output, and the same bytes in every run."""

    def run_layer(self, arrays, *options, ranks=GPUS, name="y"):
        done = ferry("layer", "--backend", "cuda", "--share-gpus", "--ranks", ranks, *self.save(arrays), "--output",
                     self.folder / f"{name}.npy", "--json", *options)
        self.assert_done(done)
        return json.loads(done.stdout), np.load(self.folder / f"{name}.npy")

    def check(self, *options, ranks=(1, 2, 3), **sizes):
        arrays = make_layer(**sizes)
        for count in ranks:
            with self.subTest(options=options, ranks=count, **sizes):
                report, output = self.run_layer(arrays, *options, "--experts-on", "gpu", "--check", ranks=count)
                self.assertEqual(report["experts_on"], "gpu")
                self.assertTrue(report["check"]["ok"])
                self.assertLess(report["check"]["worst_share_of_bound"], 1)
                self.assertGreater(report["check"]["sum_error"]["hidden"], 0)
                host, expected = self.run_layer(arrays, *options, ranks=count, name="host")
                self.assertEqual(host["experts_on"], "cpu")
                for key in ("rows", "messages", "wire_bytes"):
                    self.assertEqual(report[key], host[key])
                np.testing.assert_allclose(output, expected, rtol=0, atol=2**-5 * max(1, np.abs(expected).max()))

    def check_in_turn(self, option, values, **sizes):
        """Every format with each of the values, each pair with the next number of ranks: a process takes seconds."""
        pairs = itertools.product(FORMATS, values)
        for ranks, (format_name, value) in zip(itertools.cycle((1, 2, 3)), pairs):
            self.check("--format", format_name, option, value, ranks=(ranks,), **sizes)

    def test_formats_and_reductions(self):
        self.check_in_turn("--combine", REDUCTIONS, tokens=75, hidden=160, inter=40)

    def test_row_orders(self):
        self.check_in_turn("--rows", ("padded", "by_source"), tokens=53, hidden=160, experts=13, top_k=4)

    def test_shared_expert(self):
        for shared_inter in (20, 100):  # narrower and wider than the others
            self.check("--format", "mxfp8", tokens=53, shared_inter=shared_inter)

    def test_few_tokens(self):
        for tokens in (1, 3):
            self.check(tokens=tokens)
        _, output = self.run_layer(make_layer(tokens=0), "--experts-on", "gpu")
        self.assertEqual(output.size, 0)
        _, output = self.run_layer(make_layer(missing=1.1), "--experts-on", "gpu")  # no token has an expert
        self.assertFalse(output.any())

    def test_larger_layer(self):
        self.check("--format", "fp8_block128", tokens=5000, hidden=2880, experts=32, top_k=4, inter=1000,
                   ranks=(GPUS,))

    def test_rounds(self):
        self.check(tokens=4096 * GPUS + 9, hidden=32, experts=8, top_k=2, inter=8, ranks=(GPUS,))

    def test_same_bytes_in_every_run(self):
        arrays = make_layer(tokens=700, hidden=1312, experts=16, top_k=4, inter=600)
        outputs = {self.run_layer(arrays, "--format", "nvfp4", "--experts-on", "gpu")[1].tobytes() for _ in range(4)}
        self.assertEqual(len(outputs), 1)

    def test_dump_is_the_same(self):
        arrays = make_layer(tokens=75, hidden=160)
        dumps = []
        for place in ("cpu", "gpu"):
            folder = self.folder / place
            self.run_layer(arrays, "--format", "nvfp4", "--experts-on", place, "--dump", folder)
            dumps.append({path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.npy")})
        self.assertTrue(dumps[0])
        self.assertEqual(*dumps)

    def test_processes(self):
        ranks = 2
        arrays = self.save(make_layer(tokens=203, hidden=160, shared_inter=24))
        done = run_job(ranks, "layer", "--backend", "cuda", "--share-gpus", "--ranks", ranks, *arrays, "--output",
                       self.folder / "y.npy", "--experts-on", "gpu", "--check", "--json")
        self.assertEqual([code for code, _, _ in done], [0] * ranks, done)
        self.assertTrue(json.loads(done[0][1])["check"]["ok"])

    def test_other_ranks_are_refused(self):
        done = self.layer(make_layer(), "--backend", "cpu", "--experts-on", "gpu")
        self.assert_refused(done, 2, "--experts-on gpu", "backend cpu", "--backend cuda")
        self.assert_no_output()


def without_launcher():
    """The environment less what a launcher, or a user, says of a place in a job."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "PMI", "MPI_LOCAL", "SLURM_", "MASTER_", "RANK", "WORLD_SIZE",
                                    "FERRY_ADDRESS"))}


def run_job(processes, *arguments):
    """Runs the tool as so many processes, with what mpirun would put into their environment: [(code, out, err)]."""
    address = f"127.0.0.1:{free_port()}"
    started = []
    for rank in range(processes):
        environment = without_launcher()
        environment |= {"FERRY_ADDRESS": address,
                        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(processes),
                        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": str(processes)}
        started.append(subprocess.Popen([BINARY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=environment))
    try:
        return [(process.returncode, *said) for process, said in
                [(process, process.communicate(timeout=120)) for process in started]]
    finally:
        for process in started:
            process.kill()


def run_by_mpirun(processes, *arguments):
    """The same by whatever mpirun there is, which says alone where the processes meet; the output is that of all."""
    done = subprocess.run(["mpirun", "-np", str(processes), BINARY, *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, env=without_launcher() | MPIRUN_MAY)
    return [(done.returncode, done.stdout, done.stderr)]


@unittest.skipIf(GPUS == 0, WHY_NONE)
class JobTestCase(FerryTestCase):
    """A process for each rank: the files are those of one process with all ranks, and the first process writes them."""

    def check_same_files(self, run, format_name, *options):
        ranks = 4
        inputs = self.save(make_layer(tokens=203, hidden=160, shared_inter=24))
        common = ["layer", "--backend", "cuda", "--share-gpus", "--ranks", ranks, "--format", format_name, *options,
                  *inputs, "--json"]
        written = lambda name: ["--output", self.folder / f"{name}.npy", "--dump", self.folder / name]
        self.assert_done(ferry(*common, *written(f"one_{format_name}")))
        done = run(ranks, *common, *written(f"job_{format_name}"))
        for rank, (code, out, err) in enumerate(done):
            self.assertEqual(code, 0, f"rank {rank}: {err}")
            self.assertEqual(out == "", rank != 0)
        self.assertEqual(json.loads(done[0][1])["backend"], "cuda")
        self.assertEqual((self.folder / f"one_{format_name}.npy").read_bytes(),
                         (self.folder / f"job_{format_name}.npy").read_bytes())
        files = [{path.relative_to(self.folder / name).as_posix(): path.read_bytes()
                  for path in (self.folder / name).rglob("*.npy")}
                 for name in (f"one_{format_name}", f"job_{format_name}")]
        self.assertEqual(*files)
        self.assertTrue(files[0])

    def test_same_files(self):
        for format_name, reduction in (("fp8_block128", "by_rank"), ("nvfp4", "exact")):
            with self.subTest(format=format_name):
                self.check_same_files(run_job, format_name, "--combine", reduction)

    @unittest.skipIf(shutil.which("mpirun") is None, "mpirun was not found")
    def test_mpirun(self):
        self.check_same_files(run_by_mpirun, "fp8_block128")

    def test_other_number_of_ranks(self):
        inputs = self.save(make_layer())
        first, other = run_job(2, "layer", "--backend", "cuda", "--ranks", 1, *inputs, "--output",
                               self.folder / "y.npy")
        self.assertEqual((first[0], other[0]), (2, 2))
        self.assertIn("--ranks 1: 2 processes", first[2])
        self.assertEqual(other[2], "")  # the first says it for all
        self.assert_no_output()

    def test_bench_wants_one_process(self):
        for code, _, err in run_job(2, "bench", "--backend", "cuda", "--ranks", 2):
            self.assertEqual(code, 1)
            self.assertIn("start it without a launcher", err)


@unittest.skipIf(GPUS == 0, WHY_NONE)
class CommandsTestCase(FerryTestCase):
    def test_verify(self):
        report = json.loads(ferry("verify", "--backend", "cuda", "--quick", "--json", "--case", "reports/").stdout)
        self.assertGreater(report["ok"], 0)
        self.assertEqual(report["failed"], 0)

    def test_info(self):
        done = ferry("info", "--backend", "cuda", "--json", "--ranks", 1, "--hidden", 256, "--experts", 8, "--top-k", 2)
        self.assert_done(done)
        report = json.loads(done.stdout)
        gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
        self.assertEqual(len(gpus), GPUS)
        for number, gpu in enumerate(gpus):
            self.assertNotEqual(gpu["name"], "")
            self.assertGreater(gpu["multiprocessors"], 0)
            self.assertGreater(gpu["l2_bytes"], 0)
            self.assertLessEqual(gpu["memory_available_bytes"], gpu["memory_bytes"])
            self.assertNotIn(number, gpu["reaches"])
        self.assertEqual(report["shape"]["ranks"], 1)
        self.assertGreater(report["exchange_memory_bytes"], 0)
        text = ferry("info")
        self.assert_done(text)
        self.assertIn(gpus[0]["name"], text.stdout)

    def test_too_many_ranks(self):
        arrays = self.save(make_layer())
        done = ferry("layer", "--backend", "cuda", "--ranks", GPUS + 1, *arrays, "--output", self.folder / "y.npy")
        self.assert_refused(done, 2, f"--ranks {GPUS + 1}", f"1 to {GPUS}", "GPUs", "--share-gpus")

    def test_demo(self):
        done = ferry("demo", "--backend", "cuda", "--share-gpus", "--json", "--svg", self.folder / "map.svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(all(line["ok"] for line in json.loads(done.stdout)["formats"]))


@unittest.skipIf(GPUS == 0, WHY_NONE)
class BenchTestCase(FerryTestCase):
    """What a record holds. Nothing here looks at a time."""

    RANKS = min(GPUS, 2)  # a rank alone has no wire, and all the rest
    SMALL = ["--hidden", 256, "--experts", 8, "--top-k", 2]

    def bench(self, *arguments):
        return ferry("bench", "--backend", "cuda", "--iterations", 3, "--json", *self.SMALL, *arguments)

    def records(self, *arguments):
        done = self.bench(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_records_are_complete(self):
        records = self.records("--ranks", self.RANKS, "--tokens", "1,40", "--operation", "dispatch,combine,pair",
                               "--format", "fp8_block128,nvfp4")
        self.assertEqual(len(records), 12)
        for record in records:
            for key in ("time_us", "bytes", "wire", "floor_us", "bound_us", "ratio_to_bound", "policy", "hardware"):
                self.assertIn(key, record)
            self.assertEqual(record["backend"], "cuda")
            self.assertEqual(record["shape"]["ranks"], self.RANKS)
            self.assertEqual(len(record["wire"]["points"]), 5 if self.RANKS > 1 else 0)
            if record["operation"] != "combine":  # which is a difference
                self.assertGreater(record["time_us"]["median"], 0)
            self.assertEqual(record["floor_us"] > 0, self.RANKS > 1)  # of so few bytes of one rank it is 0.0
            self.assertEqual([phase["wire"] > 0 for key, phase in record["bytes"].items() if key != "of"],
                             [self.RANKS > 1] * (2 if record["operation"] == "pair" else 1))
            copies = {copy["method"]: copy["gb_per_s"] for copy in record["wire"]["copies"]}
            self.assertEqual(copies[record["wire"]["copy_method"]], record["wire"]["copy_gb_per_s"])
            self.assertEqual(max(copies.values()), record["wire"]["copy_gb_per_s"])

    def test_options(self):
        for options in (["--combine", "exact"], ["--routing", "zipf"], ["--max-blocks", 24],
                        ["--max-blocks", 24, "--wait-blocks", 0], ["--reduction", "either", "--combine", "exact"],
                        ["--rows", "in_place", "--message-copies", 4]):
            with self.subTest(options=options):
                (record,) = self.records("--gpus", self.RANKS, "--tokens", 9, *options)
                self.assertEqual(record["shape"]["ranks"], self.RANKS)
                self.assertEqual(record["policy"].get("wait_blocks"), 0 if "--wait-blocks" in options else None)
                if "--wait-blocks" in options:
                    self.assertEqual(len(record["kernels"]["in_order"]), 4)

    def test_baseline_is_measured_or_refused(self):
        done = self.bench("--ranks", self.RANKS, "--tokens", 9, "--baseline")
        if done.returncode != 0:
            self.assert_refused(done, 1, "--baseline needs NCCL", "leave --baseline out")
            return
        record = json.loads(done.stdout)
        self.assertEqual(record["baseline"]["name"], "NCCL, bf16")
        self.assertTrue(record["baseline"]["library"].startswith("NCCL "))
        for key in ("all_gather_us", "reduce_scatter_us", "all_to_all_us"):
            self.assertGreater(record["baseline"][key], 0)
        self.assertGreater(record["ratio_to_baseline"], 0)

    def test_too_many_ranks_are_refused(self):
        self.assert_refused(self.bench("--ranks", GPUS + 1), 2, f"--ranks {GPUS + 1}", f"1 to {GPUS}", "GPUs")

    def test_what_is_of_cpu_ranks_is_refused(self):
        for option in "--workers", "--cache":
            self.assert_refused(self.bench("--ranks", self.RANKS, option, 2), 2, option, "CPU")


@unittest.skipIf(GPUS != 0, "there are GPUs")
class NoGpuTestCase(FerryTestCase):
    def test_refusal_says_what_is_missing(self):
        arrays = self.save(make_layer())
        for arguments in (["demo"], ["verify"], ["bench"], ["layer", "--ranks", 2, *arrays, "--output",
                                                 self.folder / "y.npy"]):
            with self.subTest(arguments=arguments[0]):
                self.assert_refused(ferry(*arguments, "--backend", "cuda"), 1, "--backend cuda", WHY_NONE,
                                    "--backend cpu works")
        self.assert_no_output()

    def test_experts_on_them_are_refused(self):
        for backend in ("auto", "cpu"):
            done = self.layer(make_layer(), "--backend", backend, "--experts-on", "gpu")
            self.assert_refused(done, 1, "--experts-on gpu", WHY_NONE, "leave --experts-on out")
        done = self.layer(make_layer(), "--experts-on", "tpu")
        self.assert_refused(done, 2, "--experts-on", "cpu, gpu")
        self.assert_no_output()

    def test_info_answers_all_the_same(self):
        done = ferry("info", "--backend", "cuda", "--model", "mixtral-8x7b", "--json")
        self.assert_done(done)
        self.assertIn(WHY_NONE, json.loads(done.stdout)["why_not_here"])


if __name__ == "__main__":
    unittest.main()
