"""`--backend processes`: processes of this host, started by nothing but an address. The files are those of threads."""
import json
import os
import subprocess
import unittest

from support import BINARY, FerryTestCase, ferry, free_port, make_layer, start

RANKS = 3


class ProcessesTestCase(FerryTestCase):
    def written(self, name):
        return ["--output", self.folder / f"{name}.npy", "--dump", self.folder / name]

    def files_of(self, name):
        dumped = {path.relative_to(self.folder / name).as_posix(): path.read_bytes()
                  for path in (self.folder / name).rglob("*.npy")}
        return (self.folder / f"{name}.npy").read_bytes(), dumped

    def test_layer(self):
        common = [*self.save(make_layer()), "--format", "mxfp8", "--ranks", RANKS, "--json"]
        done = start(RANKS, "layer", "--backend", "processes", *common, *self.written("processes"))
        for each in done:
            self.assertEqual(each.returncode, 0, each.stderr)
        self.assertEqual(json.loads(done[0].stdout)["backend"], "processes")
        self.assertEqual([each.stdout for each in done[1:]], [""] * (RANKS - 1))
        self.assert_done(ferry("layer", "--backend", "cpu", *common, *self.written("cpu")))
        self.assertEqual(self.files_of("processes"), self.files_of("cpu"))

    def test_verify_and_demo(self):
        for command in (["verify", "--quick", "--case", "shapes/"], ["demo", "--ranks", RANKS, "--no-svg"]):
            done = start(RANKS, *command, "--backend", "processes")
            for each in done:
                self.assertEqual(each.returncode, 0, each.stdout + each.stderr)

    def test_bench(self):
        done = start(RANKS, "bench", "--backend", "processes", "--ranks", RANKS, "--hidden", 64, "--experts", 6, "--top-k",
                     2, "--tokens", "4,16", "--operation", "pair,dispatch,encode", "--iterations", 5, "--json")
        for each in done:
            self.assertEqual(each.returncode, 0, each.stderr)
        self.assertEqual([each.stdout for each in done[1:]], [""] * (RANKS - 1))
        records = [json.loads(line) for line in done[0].stdout.splitlines()]
        exchanges = [record for record in records if record["operation"] != "encode"]
        self.assertEqual((len(records), len(exchanges)), (6, 4))
        for record in exchanges:
            self.assertEqual((record["backend"], record["shape"]["ranks"]), ("processes", RANKS))
            self.assertEqual(record["policy"]["direct_peers_of_rank_0"], RANKS - 1)
            self.assertEqual(record["network_bytes"]["formula"], 0)  # all goes through memory
            self.assertGreater(record["plain_put"]["time_us"]["median"], 0)

    def test_trace_of_all_ranks(self):
        path = self.folder / "trace.json"
        done = start(RANKS, "bench", "--backend", "processes", "--ranks", RANKS, "--hidden", 64, "--experts", 6, "--top-k",
                     2, "--tokens", 4, "--iterations", 3, "--trace", path)
        for each in done:
            self.assertEqual(each.returncode, 0, each.stderr)
        self.assertIn("4 rounds of 1 line traced in ", done[0].stdout)
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        begins = {}
        for event in events:
            if event["name"] == "combine":
                begins.setdefault(event["pid"] % 10_000, []).append(event["ts"])
        self.assertEqual({rank: len(times) for rank, times in begins.items()}, {rank: 4 for rank in range(RANKS)})
        # One clock: a combine of any rank begins before all ranks' next one.
        for earlier, later in zip(zip(*begins.values()), list(zip(*begins.values()))[1:]):
            self.assertLess(max(earlier), min(later))

    def test_a_process_that_waits_says_so(self):
        """And where: the other one may look for it elsewhere."""
        address = f"127.0.0.1:{free_port()}"
        for command, rank in (["verify"], 0), (["demo", "--no-svg"], 1):
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "FERRY_ADDRESS": address}
            with subprocess.Popen([BINARY, *command, "--backend", "processes"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, **place}) as process:
                line = process.stderr.readline()
                process.kill()
            self.assertRegex(line, rf"^waiting for the other process at {address}, [23]\d? s\n$")

    def test_the_deadline_is_that_of_the_start_too(self):
        place = {"RANK": "0", "WORLD_SIZE": "2", "FERRY_ADDRESS": f"127.0.0.1:{free_port()}"}
        done = ferry("layer", "--backend", "processes", "--ranks", 2, *self.save(make_layer()), "--output",
                     self.folder / "y.npy", "--deadline", 1, env={**os.environ, **place})
        self.assertEqual(done.returncode, 1, done.stderr)
        for words in "rank 1 did not come within the deadline of 1 s", "--deadline sets a longer deadline":
            self.assertIn(words, done.stderr)

    def test_refusals(self):
        self.assert_refused(ferry("verify", "--backend", "processes"), 1, "--backend processes", "no launcher",
                            "torchrun --no-python --nproc-per-node RANKS ferry COMMAND --backend processes")
        for arguments, code, words in ((["layer", "--ranks", 2, *self.save(make_layer()), "--output", "y.npy"], 2,
                                        ["--ranks 2", f"{RANKS} processes were started"]),
                                       (["verify", "--nodes", 2], 2, ["--nodes 2", "1 node"]),
                                       (["bench", "--ranks", RANKS, "--nodes", 2], 2, ["--nodes 2", "1 node"]),
                                       (["bench", "--ranks", RANKS, "--baseline"], 2, ["--baseline"])):
            with self.subTest(arguments[0]):
                done = start(RANKS, *arguments, "--backend", "processes")
                self.assertEqual([each.returncode for each in done], [code] * RANKS, done[0].stderr)
                for word in words:
                    for each in done:  # nobody but the user knows that they are of one job
                        self.assertIn(word, each.stderr)


class UnfitEnvironmentTestCase(FerryTestCase):
    """RANK, WORLD_SIZE and an address that do not fit together, or that belong to nobody else."""

    UNFIT = {"rank 2 of 2 ranks": {"RANK": "2", "WORLD_SIZE": "2", "FERRY_ADDRESS": "127.0.0.1:5000"},
             "no address": {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n0"},
             "RANK=abc": {"RANK": "abc", "WORLD_SIZE": "2", "MASTER_ADDR": "n0"}}
    ALONE = {"RANK": "1", "WORLD_SIZE": "2", "FERRY_ADDRESS": "127.0.0.1:5000"}

    def test_help_and_version_work(self):
        for words, place in self.UNFIT.items():
            for command in ["--help"], ["bench", "--help"], ["version"], ["--version"], ["completion", "bash"]:
                with self.subTest(words, command=command):
                    self.assert_done(ferry(*command, env={**os.environ, **place}))

    def test_commands_are_refused(self):
        for words, place in self.UNFIT.items():
            for command in ["info"], ["demo", "--no-svg"], ["verify", "--quick"], ["bench", "--backend", "cpu"]:
                with self.subTest(words, command=command):
                    self.assert_refused(ferry(*command, env={**os.environ, **place}), 2, words)

    def test_a_process_of_another_number_says_what_is_wrong(self):
        demo = ["demo", "--backend", "processes", "--rank", 2]
        self.assert_refused(ferry(*demo, env={**os.environ, **self.ALONE}), 2, "--rank is not an option of ferry demo")
        bare = ferry(env={**os.environ, **self.ALONE})
        self.assertEqual(bare.returncode, 2)
        self.assertIn("bench", bare.stderr)

    def test_the_first_speaks_for_those_of_a_launcher(self):
        launched = {"torchrun": {**self.ALONE, "TORCHELASTIC_RUN_ID": "none"},
                    "Open MPI": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}}
        for launcher, place in launched.items():
            with self.subTest(launcher):
                done = ferry("demo", "--rank", 2, env={**os.environ, **place})
                self.assertEqual((done.returncode, done.stderr), (2, ""))


if __name__ == "__main__":
    unittest.main()
