#!/usr/bin/env python3
"""Tests of benchmarks/plots.py: what it makes of records. They need matplotlib and are skipped without."""

import importlib.util
import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from test_reports import ASKED, asked, of_cpus, record, sweep

if importlib.util.find_spec("matplotlib") is not None:
    import plots
else:
    plots = None


@unittest.skipIf(plots is None, "matplotlib is not there (./dev plots installs it)")
class PlotTest(unittest.TestCase):
    def plots_of(self, measured):
        """{name: bytes} of the plots of these records."""
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
