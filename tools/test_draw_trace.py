#!/usr/bin/env python3
"""The picture of a trace: that of docs/trace.md is the one that is checked in, and every slice of its round is drawn."""

import json
import pathlib
import unittest
import xml.etree.ElementTree

import draw_trace

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = ROOT / "benchmarks" / "results" / "trace_4_cpu_ranks.json"
DISPATCH = 18  # as docs/trace.md says


def events():
    return json.loads(TRACE.read_text(encoding="utf-8"))["traceEvents"]


class TracePicture(unittest.TestCase):
    def test_is_that_of_the_page(self):
        drawn = draw_trace.draw(draw_trace.Round(events(), DISPATCH)).svg()
        self.assertEqual((ROOT / "docs" / "images" / "trace.svg").read_text(encoding="utf-8"), drawn,
                         "run the command of docs/trace.md")

    def test_every_slice_of_the_round_lies_within_the_card(self):
        shown = draw_trace.Round(events(), DISPATCH)
        root = xml.etree.ElementTree.fromstring(draw_trace.draw(shown).svg())
        width, height = (float(root.get(side)) for side in ("width", "height"))
        shapes = [shape for shape in root.iter() if shape.tag.endswith("rect")]
        for shape in shapes:
            self.assertLessEqual(float(shape.get("x")) + float(shape.get("width")), width)
            self.assertLessEqual(float(shape.get("y")) + float(shape.get("height")), height)
        slices = sum(len(slices) for rank in shown.ranks.values() for slices in rank.values())
        self.assertEqual(len(shapes), 1 + slices + 5)  # the card, and the legend

    def test_each_rank_has_each_step_once_in_each_call(self):
        shown = draw_trace.Round(events(), DISPATCH)
        self.assertEqual(sorted(shown.ranks), [0, 1, 2, 3])
        for slices in shown.ranks.values():
            self.assertEqual([name for name, _, _ in slices["steps"]],
                             ["route", "send", "wait", "lay out", "wait", "send", "sum"])

    def test_the_last_round_is_drawn_where_none_is_named(self):
        self.assertEqual(draw_trace.Round(events()).dispatch, 21)

    def test_a_round_that_is_not_there(self):
        with self.assertRaises(SystemExit):
            draw_trace.Round(events(), 99)
        with self.assertRaises(SystemExit):
            draw_trace.Round([])

    def test_kernels_and_their_steps_are_left_out(self):
        calls = [event for event in events() if event["name"] == "dispatch" and event["args"]["dispatch"] == DISPATCH]
        kernels = [dict(call, tid=2000 + i, name=name, dur=call["dur"] + i) for call in calls
                   for i, name in enumerate(("dispatch kernel", "route", "send", "wait", "lay out"))]
        names = [{"ph": "M", "name": "thread_sort_index", "pid": call["pid"], "tid": 2001, "args": {"sort_index": 2001}}
                 for call in calls]
        self.assertEqual(draw_trace.draw(draw_trace.Round(events() + kernels + names, DISPATCH)).svg(),
                         draw_trace.draw(draw_trace.Round(events(), DISPATCH)).svg())

    def test_ticks_are_ten_at_most(self):
        self.assertEqual([draw_trace.nice_step(length) for length in (7, 11, 60, 1001, 62_537)], [1, 2, 10, 200, 10_000])


if __name__ == "__main__":
    unittest.main()
