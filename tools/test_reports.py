#!/usr/bin/env python3
"""Tests of benchmarks/table.py and plots.py: what they make of records. The plots need matplotlib and are skipped without."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import records  # noqa: E402
import table  # noqa: E402

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


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


@unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not there (./dev plots installs it)")
class PlotTest(unittest.TestCase):
    def plots_of(self, measured):
        """{name: bytes} of the plots of these records."""
        import plots
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "x.jsonl").write_text("".join(json.dumps(one) + "\n" for one in measured))
            plots.main([str(folder / "out"), str(folder / "x.jsonl")])
            return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}

    def test_rounds_of_the_newest_and_the_oldest_commit(self):
        lines = [{"n": n, "hidden": 7168, "top_k": 8, "experts": 256, "ranks": 2, "format": "fp8_block128", "max_blocks": 0,
                  "commit": commit, "dispatch_us": 9.0 + n, "combine_us": 8.0 + n, "pair_us": 17.0 + 2 * n}
                 for commit in ("old", "between", "new") for n in (1, 32, 1024)]
        (made,) = self.plots_of(lines).values()
        for word in (b">new<", b">old<", b">dispatch<"):
            self.assertIn(word, made)
        self.assertNotIn(b">between<", made)
        self.assertEqual(self.plots_of(lines[:2]), {})  # too few to draw

    def test_what_engines_ask_for(self):
        def line(n, commit="old", **asked):
            return {"n": n, "hidden": 7168, "top_k": 8, "experts": 256, "ranks": 2, "format": "fp8_block128",
                    "max_blocks": 0, "given": False, "replay": False, "rows": "by_expert", "results": "bf16",
                    "commit": commit, "dispatch_us": 9.0 + n, "combine_us": 8.0 + n, "pair_us": 17.0 + 2 * n} | asked
        cases = ({}, {"replay": True}, {"rows": "by_source"}, {"rows": "padded"}, {"rows": "in_place"})
        others = ({"rows": "by_source", "given": True}, {"results": "nvfp4"}, {"rows": "by_source", "replay": True})
        lines = [line(n, **asked) for asked in cases + others for n in (128, 1024, 4096)]
        made = self.plots_of(lines)
        self.assertEqual(list(made), ["x-engines.svg"])
        text = made["x-engines.svg"]
        ElementTree.fromstring(text)
        for word in ("dispatch", "combine", "by_expert", "by_expert, replayed", "by_source", "padded", "in_place"):
            self.assertEqual(text.count(f">{word}<".encode()), 1, word)
        self.assertNotIn(b"pair", text)
        few_blocks = [line(128, rows="padded", max_blocks=24)]
        self.assertEqual(self.plots_of(lines + few_blocks), made)  # another kind of line
        self.assertNotEqual(self.plots_of(lines + [line(128, "new", rows="padded", dispatch_us=3.0)]), made)
        self.assertEqual(list(self.plots_of(lines[:6])), ["x-rounds.svg"])  # too little was asked for

    def test_each_kind_of_plot(self):
        models = [one for name in ("deepseek-v3", "kimi-k2", "mixtral-8x7b") for one in sweep(name)]
        formats = [record(format_name=name) for name in ("bf16", "mxfp8", "nvfp4")]
        made = self.plots_of(sweep() + models + formats)
        self.assertEqual(sorted(made), ["x-formats.svg", "x-models.svg", "x-tokens.svg"])
        for name, text in made.items():
            with self.subTest(plot=name):
                ElementTree.fromstring(text)
        self.assertIn(b"NCCL", made["x-tokens.svg"])
        self.assertIn(b"kimi-k2", made["x-models.svg"])
        self.assertIn(b"nvfp4", made["x-formats.svg"])

    def test_records_of_cpus_are_drawn_beside_their_floor(self):
        models = [one for name in ("deepseek-v3", "kimi-k2", "mixtral-8x7b") for one in sweep(name)]
        made = self.plots_of(list(map(of_cpus, sweep() + models)))
        self.assertEqual(sorted(made), ["x-models.svg", "x-tokens.svg"])
        self.assertIn(b">floor<", made["x-tokens.svg"])
        self.assertIn(b"pair: time over its floor", made["x-models.svg"])
        for text in made.values():
            self.assertNotIn(b"bound", text)

    def test_same_records_same_bytes(self):
        self.assertEqual(self.plots_of(sweep()), self.plots_of(sweep()))

    def test_a_later_record_counts(self):
        import plots
        _, lines = plots.longest_sweep(sweep() + [record("pair", 32, median=99.0)])
        self.assertEqual(lines["pair", 32]["time_us"]["median"], 99.0)

    def test_what_is_asked_for_otherwise_changes_no_point(self):
        models = [one for name in ("deepseek-v3", "kimi-k2", "mixtral-8x7b") for one in sweep(name)]
        formats = [record(format_name=name) for name in ("bf16", "mxfp8", "nvfp4")]
        plain = sweep() + models + formats
        made = self.plots_of(plain)
        few = sweep()[:3] + models[:9] + formats[:1]  # some lines of each plot, not for all models
        for policy in (*ASKED, {"combine": "exact"}):
            with self.subTest(policy):
                self.assertEqual(self.plots_of(plain + [asked(one, **policy) for one in few]), made)

    def test_what_is_asked_for_is_said(self):
        models = [one for name in ("deepseek-v3", "kimi-k2", "mixtral-8x7b") for one in sweep(name)]
        formats = [record(format_name=name) for name in ("bf16", "mxfp8", "nvfp4")]
        made = self.plots_of([asked(one, rows="by_source") for one in sweep() + models + formats])
        self.assertEqual(sorted(made), ["x-formats.svg", "x-models.svg", "x-tokens.svg"])
        for name, text in made.items():
            self.assertIn(b"rows by_source", text, name)
        both = self.plots_of(models + [asked(one, combine="exact") for one in models])["x-models.svg"]
        for combine in (b", by_rank<", b", exact<"):
            self.assertIn(combine, both)

    def test_few_points_make_no_plot(self):
        self.assertEqual(self.plots_of([record()]), {})


if __name__ == "__main__":
    unittest.main()
