#!/usr/bin/env python3
"""Tests of benchmarks/table.py: what it makes of records. test_plots.py has those of plots.py."""

import json
import pathlib
import sys
import tempfile
import unittest

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import records  # noqa: E402
import table  # noqa: E402


def record(operation="pair", tokens=128, model=None, format_name="fp8_block128", baseline=True, median=40.0):
    shape = {"ranks": 4, "experts": 256, "top_k": 8, "hidden": 7168, "tokens": tokens}
    made = {
        "command": "ferry bench --backend cuda", "backend": "cuda", "operation": operation, "format": format_name,
        "shape": shape | ({"model": model} if model else {}),
        "policy": {"combine": "by_rank", "routing": "uniform", "max_blocks": 0},
        "time_us": {"min": 30.0, "median": median, "p90": 45.0, "p99": 50.0},
        "bytes": {"of": "the busiest rank", "dispatch": {"wire": 2e6, "device": 3e6}, "combine": {"wire": 4e6, "device": 1}},
        "wire": {"gb_per_s": 345.0}, "floor_us": 20.0, "ratio_to_floor": 2.0, "bound_us": 35.0, "ratio_to_bound": 1.14,
    }
    if baseline:
        made |= {"baseline": {"name": "NCCL, bf16", "time_us": {"median": 80.0}}, "ratio_to_baseline": 0.5}
    return made


def of_cpus(made):
    """The record as CPU ranks make it: with a floor, without a bound."""
    policy = {"combine": "by_rank", "routing": "uniform", "workers": 1}
    return {name: value for name, value in made.items() if "bound" not in name} | {"backend": "cpu", "policy": policy}


# What records of one exchange may differ in beside format, combine and routing.
ASKED = ({"rows": "by_source"}, {"results": "nvfp4"}, {"given": "encoded"}, {"dispatch": "replay"}, {"message_copies": 4},
         {"max_blocks": 24}, {"workers": 2})


def asked(made, **policy):
    """The same line, asked for something else, and slower."""
    return made | {"policy": made["policy"] | policy, "time_us": made["time_us"] | {"median": 999.0},
                   "ratio_to_bound": 9.0, "floor_us": 500.0}


def sweep(model=None):
    return [record(operation, tokens, model) for tokens in (1, 32, 1024) for operation in ("dispatch", "combine", "pair")]


class TableTest(unittest.TestCase):
    def test_row_of_a_gpu_record(self):
        row = table.exchange_row(record())
        self.assertEqual((row["shape"], row["n"]), ("hidden 7168, top-8 of 256, 4 GPUs", "128"))
        self.assertEqual((row["MB"], row["bound us"], row["x bound"]), ("6.0", "35.0", "1.14"))
        self.assertEqual((row["NCCL us"], row["x NCCL"]), ("80.0", "0.50"))

    def test_what_all_rows_share_is_said_once(self):
        text = table.table([table.exchange_row(one) for one in sweep()])
        self.assertTrue(text.startswith("all: shape hidden 7168"))
        self.assertIn("| operation | n |", text)
        self.assertEqual(text.count("\n| "), 10)

    def test_what_lines_are_asked_for_is_a_column_where_it_varies(self):
        for policy in ASKED:
            with self.subTest(policy):
                ((_, value),) = policy.items()
                rows = [table.exchange_row(record()), table.exchange_row(asked(record(), **policy))]
                self.assertIn(f" {value} |", table.table(rows))
        usual = {"rows": "by_expert", "results": "bf16", "given": "bf16", "dispatch": "fresh", "message_copies": 2}
        said = table.exchange_row(record() | {"policy": record()["policy"] | usual})
        self.assertEqual(said, table.exchange_row(record()))  # older records do not say it

    def test_rows_without_a_baseline_have_an_empty_cell(self):
        text = table.table([table.exchange_row(record()), table.exchange_row(record(tokens=1, baseline=False))])
        self.assertIn("NCCL us", text)
        self.assertIn("|  |", text)

    def test_records_of_cpus_have_no_columns_of_a_bound(self):
        text = table.table([table.exchange_row(of_cpus(one)) for one in sweep()])
        self.assertIn("floor us 20.0, x floor 2.00", text)
        self.assertNotIn("bound", text)

    def test_row_of_processes(self):
        made = record() | {"backend": "shmem", "policy": {"combine": "exact", "routing": "uniform", "nodes": 4},
                           "plain_put": {"time_us": {"median": 25.0}}, "ratio_to_plain_put": 1.6,
                           "network_bytes": {"formula": 3e6, "left_the_interfaces": 3.1e6}}
        row = table.row_of(made)
        self.assertEqual((row["shape"], row["nodes"]), ("hidden 7168, top-8 of 256, 4 processes", "4"))
        self.assertEqual((row["plain put us"], row["x put"]), ("25.0", "1.60"))
        self.assertEqual((row["network MB"], row["left the host, MB"]), ("3.00", "3.10"))

    def test_lines_of_other_tools_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.jsonl"
            path.write_text(json.dumps({"n": 1, "pair_us": 2.0}) + "\n" + json.dumps(record()) + "\n")
            self.assertEqual(len(records.load(path)), 1)

    def test_results_of_the_tree_can_be_read(self):
        for path in (BENCHMARKS / "results").glob("*.jsonl"):
            for one in records.load(path):
                table.row_of(one)


if __name__ == "__main__":
    unittest.main()
