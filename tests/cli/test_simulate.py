"""`ferry bench --simulate`: its bytes beside those that real rounds count, its bounds beside closed forms, refusals."""
import json
import math
import unittest

from support import FerryTestCase, ferry

V3 = ["--model", "deepseek-v3", "--format", "fp8_block128"]


def named_ranks(ranks, experts, top_k):
    """Expected number of distinct ranks that a token names when every set of experts is as likely."""
    return ranks * (1 - math.comb(experts - experts // ranks, top_k) / math.comb(experts, top_k))


class SimulateTestCase(FerryTestCase):
    def records(self, *arguments):
        done = ferry("bench", "--simulate", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def assert_close(self, got, expected, share=0.05):
        self.assertLessEqual(abs(got - expected), share * expected, f"{got} and {expected}")

    def test_agrees_with_what_exchanges_count(self):
        for options in (["--format", "bf16"], ["--format", "mxfp4", "--combine", "exact"],
                        ["--format", "nvfp4", "--routing", "zipf"]):
            shape = ["--ranks", "2,4,8", "--experts", 32, "--top-k", 4, "--hidden", 256, "--tokens", 200, *options]
            measured = ferry("bench", *shape, "--json", "--iterations", 2, "--cache", 4)
            self.assertEqual(measured.returncode, 0, measured.stderr)
            for line, record in zip(measured.stdout.splitlines(), self.records(*shape), strict=True):
                with self.subTest(options=options, ranks=record["shape"]["ranks"]):
                    sent = json.loads(line)["sent"]
                    links = [record[phase]["nvlink"] for phase in ("dispatch_sent", "combine_sent")]
                    self.assert_close(links[0]["messages"], sent["messages"])
                    self.assert_close(sum(link[part] for link in links for part in (
                        "message_bytes", "table_bytes", "count_bytes")), sent["bytes"])

    def test_combines_that_choose(self):
        """On links what the combine is, in memory what the exchange is."""
        shape = ["--ranks", 16, "--experts", 32, "--top-k", 4, "--hidden", 256, "--tokens", 64]
        records = self.records(*shape, "--reduction", "by_rank,exact,either")
        by_rank, exact, either = records
        (either_exact,) = self.records(*shape, "--reduction", "either", "--combine", "exact")
        for key in ("combine_sent", "combine", "other_ways"):
            self.assertEqual(either[key], by_rank[key])
            self.assertEqual(either_exact[key], exact[key])
        self.assertEqual((either["policy"]["combine"], either["policy"]["reduction"]), ("by_rank", "either"))
        self.assertGreater(either["memory_bytes_per_rank"], by_rank["memory_bytes_per_rank"])
        self.assert_close(either["memory_bytes_per_rank"], exact["memory_bytes_per_rank"])

    def test_all_models(self):
        records = self.records("--model", "all", "--ranks", 8, "--tokens", 1)
        shapes = {record["shape"]["model"]: record["shape"]["hidden"] for record in records}
        self.assertEqual((len(records), len(shapes)), (20, 20))
        self.assertEqual((shapes["deepseek-v3"], shapes["mixtral-8x7b"]), (7168, 4096))

    def test_uniform_routing_on_one_node_is_the_closed_form(self):
        """docs/scaling.md has the least time of this shape: (bytes to other ranks) / 350 GB/s + 3.5 us."""
        for record in self.records("--ranks", 4, "--tokens", "128,1024,4096", *V3):
            n = record["shape"]["tokens"]
            remote = named_ranks(4, 256, 8) * 3 / 4
            self.assert_close(record["dispatch"]["least_us"], 3.5 + n * remote * (7392 + 8) / 350e3 + n * 3 * 64 / 350e3)
            self.assert_close(record["combine"]["least_us"], 3.5 + n * remote * (14336 + 8) / 350e3)
            self.assertEqual(record["dispatch"]["nic"]["bytes_all_ranks"], 0)

    def test_uniform_routing_over_nodes_is_the_closed_form(self):
        (record,) = self.records("--ranks", 64, "--ranks-per-node", 4, "--nic", 25, "--tokens", 512, *V3)
        across = named_ranks(64, 256, 8) * 60 / 64
        sent = record["dispatch_sent"]["nic"]
        self.assert_close(sent["messages"], 64 * 512 * across, 0.01)
        self.assertEqual(sent["message_bytes"], sent["messages"] * 7392)
        self.assertEqual(sent["table_bytes"], 64 * 60 * (512 * 64 + 64))
        self.assertEqual(sent["count_bytes"], 64 * 60 * 4 * 4)
        self.assertEqual(sent["signals"], sent["messages"] + 64 * 60)
        mean_us = 5 + 512 * (across * 7400 + 60 * 64) / 25e3
        self.assertGreater(record["dispatch"]["least_us"], mean_us * 0.99)
        self.assert_close(record["dispatch"]["least_us"], mean_us, 0.1)
        forwarded = record["other_ways"]["forwarded"]
        nodes_named = named_ranks(16, 256, 8) * 15 / 16
        self.assert_close(forwarded["dispatch"]["nic"]["bytes_all_ranks"],
                          64 * 512 * (nodes_named * 7400 + 15 * 64), 0.01)
        self.assert_close(forwarded["combine"]["nic"]["bytes_all_ranks"], 64 * 512 * nodes_named * 14344, 0.01)

    def test_memory(self):
        shape = ["--ranks", 8, "--experts", 64, "--top-k", 4, "--hidden", 512, "--tokens", 64]
        (one_node,) = self.records(*shape, "--format", "mxfp8")
        info = json.loads(ferry("info", *shape, "--format", "mxfp8", "--json").stdout)
        self.assertEqual(one_node["memory_bytes_per_rank"], info["exchange_memory_bytes"])
        (two_nodes,) = self.records(*shape, "--format", "mxfp8", "--ranks-per-node", 4)
        self.assert_close(two_nodes["memory_bytes_per_rank"],
                          one_node["memory_bytes_per_rank"] + 2 * 64 * 528 + 8 * 64 * 1024)

    def test_the_most_ranks(self):
        (record,) = self.records("--ranks", 2048, "--experts", 2048, "--tokens", 8, "--routing", "zipf")
        self.assertEqual(record["nodes"], 256)
        self.assertGreater(record["table_share"], 0.3)
        self.assertLess(record["other_ways"]["own_entries"]["dispatch"]["nic"]["bytes_all_ranks"],
                        record["dispatch"]["nic"]["bytes_all_ranks"])

    def test_node_limit_and_operations(self):
        shape = ["--ranks", 32, "--tokens", 64, *V3]
        anywhere, limited = self.records(*shape), self.records(*shape, "--node-limit", 1)
        self.assertEqual(limited[0]["policy"]["node_limit"], 1)
        crossing = [records[0]["other_ways"]["forwarded"]["dispatch"]["nic"]["operations_all_ranks"]
                    for records in (anywhere, limited)]
        self.assertLess(crossing[1], 0.5 * crossing[0])
        (slow,) = self.records(*shape, "--nic-operations", 1)
        self.assertEqual(slow["dispatch"]["limit"].split(",")[1:], [" operations"])
        self.assertEqual(slow["dispatch"]["least_us"], 5 + max(slow["dispatch"]["nic"]["operations_sent_most"],
                                                               slow["dispatch"]["nic"]["operations_received_most"]))

    def test_text_and_output(self):
        path = self.folder / "simulated.jsonl"
        done = ferry("bench", "--simulate", "--ranks", "4,16", "--tokens", 16, "--output", path)
        self.assert_done(done)
        self.assertIn("nodes of 8 ranks", done.stdout)
        self.assertIn("forwarded", done.stdout)
        self.assertTrue(done.stdout.endswith(f"\n2 lines of JSON appended to {path}\n"))
        self.assertEqual([json.loads(line)["shape"]["ranks"] for line in path.read_text().splitlines()], [4, 16])

    def test_same_every_time(self):
        arguments = ["--ranks", 24, "--tokens", 20, "--routing", "uniform,zipf", "--node-limit", 2]
        self.assertEqual(self.records(*arguments), self.records(*arguments))


class SimulateRefusalTestCase(FerryTestCase):
    def test_an_exponent_without_zipf_is_told(self):
        shape = ["bench", "--simulate", "--ranks", 4, "--tokens", 4, "--zipf-exponent", 2]
        done = ferry(*shape)
        self.assertEqual((done.returncode, done.stderr),
                         (0, "ferry: note: --zipf-exponent has no effect without --routing zipf\n"))
        self.assert_done(ferry(*shape, "--routing", "zipf"))

    def test_bad_use(self):
        for arguments, words in (
            (["--simulate", "--ranks", 2049], ["--ranks", "2049"]),
            (["--simulate", "--ranks", 128], ["--ranks 128", "64 (the default of --experts)"]),
            (["--simulate", "--ranks", 16, "--model", "all"], ["--ranks 16", "8 (of --model mixtral-8x7b)"]),
            (["--ranks", 73, "--experts", 128], ["--ranks", "73", "72"]),
            (["--simulate", "--baseline"], ["--baseline", "--simulate"]),
            (["--simulate", "--operation", "pair"], ["--operation", "--simulate"]),
            (["--simulate", "--seconds", 1], ["--seconds", "--simulate"]),
            (["--simulate", "--nodes", 2], ["--nodes", "--simulate"]),
            (["--nic", 100], ["--nic", "--simulate"]),
            (["--simulate", "--nic", 0], ["--nic"]),
            (["--simulate", "--ranks-per-node", 73], ["--ranks-per-node"]),
            (["--simulate", "--ranks", 16, "--ranks-per-node", 1, "--node-limit", 1], ["1 node", "top_k is 8"]),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(ferry("bench", *arguments), 2, *words)


if __name__ == "__main__":
    unittest.main()
