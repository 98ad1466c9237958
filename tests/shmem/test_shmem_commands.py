"""`ferry bench`, `demo` and `info` with processes as ranks. Times are not looked at."""
import json
import re

from support import ferry, make_layer
from test_shmem_layer import ProcessesTestCase, oshrun


class BenchTestCase(ProcessesTestCase):
    # Every token goes to every expert, so the bytes are known: to each other rank n messages and n results.
    RANKS, EXPERTS, HIDDEN, TOKENS = 3, 6, 512, 16

    def bench(self, *options, environment=None):
        return oshrun(self.RANKS, "bench", "--backend", "shmem", "--ranks", self.RANKS, "--experts", self.EXPERTS,
                      "--top-k", self.EXPERTS, "--hidden", self.HIDDEN, "--tokens", self.TOKENS, "--iterations", 5,
                      *options, environment=environment)

    def bytes_between_two(self, message):
        experts = self.EXPERTS // self.RANKS
        return self.TOKENS * (message + 2 * self.HIDDEN + 8 * self.EXPERTS + 8 * 2) + 64 + 4 * experts + 8 * 2

    def test_bytes_through_the_network(self):
        for options, pairs, message in (((), 6, 2 * self.HIDDEN),
                                        (("--format", "mxfp8"), 6, self.HIDDEN + self.HIDDEN // 32)):
            done = self.bench("--json", *options, environment={"UCX_TLS": "tcp,self"})
            self.assert_done(done)
            record = json.loads(done.stdout)
            self.assertEqual(record["network_bytes"]["formula"], pairs * self.bytes_between_two(message))
            self.assertEqual(record["backend"], "shmem")
            self.assertEqual(record["policy"]["direct_peers_of_rank_0"], 0)
            self.assertEqual(record["time_us"]["iterations"], 5)
            self.assertGreater(record["plain_put"]["time_us"]["iterations"], 0)

    def test_only_ranks_of_other_nodes_count(self):
        done = self.bench("--json")
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout)["network_bytes"], {"formula": 0})
        done = self.bench("--json", "--nodes", 2)  # ranks 0 and 1, and rank 2
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout)["network_bytes"]["formula"],
                         4 * self.bytes_between_two(2 * self.HIDDEN))

    def test_records_and_table(self):
        path = self.folder / "records.jsonl"
        done = self.bench("--output", path, "--operation", "dispatch,combine,encode")
        self.assert_done(done)
        self.assertIn("x put", done.stdout)
        records = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([record["operation"] for record in records], ["dispatch", "combine", "encode"])

    def test_baseline_is_refused(self):
        done = self.bench("--baseline")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--baseline", done.stderr)


class WireTestCase(ProcessesTestCase):
    """Bytes between processes over TCP: what they count, what `ferry bench --simulate` computes, what the host sends."""

    def measured(self, ranks, *shape):
        done = oshrun(ranks, "bench", "--backend", "shmem", "--json", "--ranks", ranks, *shape, "--iterations", 2,
                      environment={"UCX_TLS": "tcp,self"})
        self.assert_done(done)
        return json.loads(done.stdout)["network_bytes"]

    def simulated(self, ranks, *shape):
        done = ferry("bench", "--simulate", "--json", "--ranks", ranks, *shape, "--ranks-per-node", 1)
        self.assert_done(done)
        record = json.loads(done.stdout)
        return sum(record[phase]["nic"]["bytes_all_ranks"] for phase in ("dispatch", "combine"))

    def assert_close(self, got, expected):
        self.assertLessEqual(abs(got - expected), 0.05 * expected, f"{got} and {expected}")

    def test_simulation(self):
        for ranks in (2, 4, 8):
            for options in ([], ["--combine", "exact", "--format", "mxfp4"]):
                with self.subTest(ranks=ranks, options=options):
                    shape = ["--experts", 32, "--top-k", 4, "--hidden", 256, "--tokens", 200, *options]
                    self.assert_close(self.measured(ranks, *shape)["formula"], self.simulated(ranks, *shape))

    def test_what_the_host_sends(self):
        """Headers of TCP included, so messages are large."""
        for ranks, options in ((2, ["--combine", "exact"]), (4, ["--format", "mxfp8"])):
            with self.subTest(ranks=ranks):
                shape = ["--experts", 64, "--top-k", 8, "--hidden", 7168, "--tokens", 64, *options]
                network = self.measured(ranks, *shape)
                self.assert_close(network["left_the_interfaces"], network["formula"])


class DebugLogTestCase(ProcessesTestCase):
    def test_ranks_say_how_they_reach_each_other(self):
        """Two logical nodes of two ranks: stores within a node, puts between them."""
        path = self.folder / "log"
        done = oshrun(4, "verify", "--backend", "shmem", "--nodes", 2, "--case", "shapes/all_experts",
                      environment={"FERRY_DEBUG": "info", "FERRY_DEBUG_FILE": str(path)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = path.read_text()
        for rank in range(4):
            puts = [other for other in range(4) if other // 2 != rank // 2]
            self.assertRegex(text, rf"rank {rank} info: world of 4 processes over OpenSHMEM, 2 nodes: loads and stores to "
                                   rf"ranks {rank ^ 1}; puts to ranks {puts[0]} {puts[1]}\n")
            self.assertRegex(text, rf"rank {rank} info: exchange on shmem \(4 ranks, some by puts\)")
        self.assertEqual(len(set(re.findall(r"^ferry \S+:(\d+) ", text, re.MULTILINE))), 4)


class DemoAndInfoTestCase(ProcessesTestCase):
    def test_demo(self):
        done = oshrun(4, "demo", "--json", "--svg", self.folder / "demo.svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["backend"], "shmem")
        self.assertTrue(all(line["ok"] for line in report["formats"]))
        self.assertTrue((self.folder / "demo.svg").exists())
        threads = json.loads(ferry("demo", "--backend", "cpu", "--json", "--svg", self.folder / "threads.svg").stdout)
        self.assertEqual(report["messages_between"], threads["messages_between"])
        self.assertEqual((self.folder / "demo.svg").read_bytes(), (self.folder / "threads.svg").read_bytes())

    def test_demo_has_a_rank_for_each_process(self):
        done = oshrun(2, "demo", "--no-svg", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["messages_between"]), 2)

    def test_demo_of_fewer_processes_than_its_ranks(self):
        done = oshrun(2, "demo", "--no-svg", "--ranks", 4)
        self.assertEqual(done.returncode, 2)
        self.assertIn("ferry: --ranks 4: 2 processes were started, and with backend shmem each is a rank: give --ranks 2\n",
                      done.stderr)

    def test_demo_text_is_read_by_the_first_process(self):
        for _ in range(4):
            done = oshrun(4, "demo", "--text", self.folder / "nothing.txt", "--svg", self.folder / "demo.svg")
            self.assertEqual(done.returncode, 1)
            self.assertFalse((self.folder / "demo.svg").exists())
            if "ferry: --text" in done.stderr:  # else the launcher ended before it had passed the line on, as it may
                break
        self.assertEqual(done.stderr.count("ferry: --text"), 1)

    def test_info(self):
        done = oshrun(3, "info", "--backend", "shmem", "--json", "--ranks", 3, "--experts", 8, "--top-k", 2,
                      "--hidden", 64)
        self.assert_done(done)
        report = json.loads(done.stdout)
        self.assertIn("sent messages", [line["region"] for line in report["exchange_memory"]])


class RepeatedTestCase(ProcessesTestCase):
    """Commands whose ranks are all of one process, under a launcher: each process runs them, and one line says so."""

    def noted(self, done, *words):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("ferry: note: 3 processes were started"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_layer(self):
        layer = ["layer", "--backend", "cpu", "--ranks", 2, *self.save(make_layer()), "--output", self.folder / "y.npy"]
        self.noted(oshrun(3, *layer), "each runs the whole command", "--backend cpu", "threads", "--backend processes or shmem")
        self.assert_done(ferry(*layer))

    def test_codec(self):
        tokens = self.save(make_layer())[1]
        encode = ["codec", "encode", "--format", "bf16", "--in", tokens, "--payload", self.folder / "p.npy"]
        self.noted(oshrun(3, *encode), "whole array", "without the launcher")
        decode = ["codec", "decode", "--format", "bf16", "--payload", self.folder / "p.npy", "--out"]
        self.noted(oshrun(3, *decode, self.folder / "out.npy"), "whole array")
        self.assert_done(ferry(*encode))
