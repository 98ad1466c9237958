#!/usr/bin/env python3
"""Draws a round of a trace (docs/trace.md) as SVG: for each rank its steps, and below them for whom it waited. The same
trace gives the same bytes; the standard library alone.

usage: draw_trace.py TRACE PICTURE.svg [DISPATCH]
  DISPATCH  the number of the dispatch whose round is drawn, with its combine; the last one that all ranks have
"""

import json
import pathlib
import sys

from picture import Picture

CALLS, KERNELS = 1, 2000  # tracks
LOOKS = {"route": "route", "send": "send", "lay out": "receive", "sum": "receive", "wait": "box"}
LEFT, RIGHT, LANE, BAND = 84, 24, 24, 74
WIDTH = 1080
LETTER = 7.2  # the width that a letter is given


class Round:
    """The slices of one round, by rank: calls, steps, waits and kernels, each with begin and end in us from the first."""

    def __init__(self, events, dispatch=None):
        slices = [event for event in events if event["ph"] == "X"]
        numbers = {}
        for event in slices:
            if event["tid"] == CALLS and "dispatch" in event["args"]:
                numbers.setdefault(event["args"]["dispatch"], set()).add(event["pid"])
        everyone = {pid for pids in numbers.values() for pid in pids}
        common = [number for number, pids in numbers.items() if pids == everyone]
        if not common or (dispatch is not None and dispatch not in common):
            raise SystemExit(f"no dispatch {'' if dispatch is None else f'{dispatch} '}that all ranks have")
        self.dispatch = max(common) if dispatch is None else dispatch
        mine = [event for event in slices if event["args"].get("dispatch") == self.dispatch]
        calls = [event for event in mine if event["tid"] == CALLS]
        start = min(event["ts"] for event in mine)
        self.ranks = {}
        for event in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
            of_round = event in mine or any(
                call["pid"] == event["pid"] and call["ts"] <= event["ts"]
                and event["ts"] + event["dur"] <= call["ts"] + call["dur"] + 2e-3 for call in calls)
            if of_round and event["tid"] < KERNELS:
                found = self.ranks.setdefault(event["pid"] % 10_000, {"calls": [], "steps": [], "waits": []})
                kind = "waits" if event["name"].startswith("rank ") else "steps" if event["name"] in LOOKS else "calls"
                found[kind].append((event["name"], event["ts"] - start, event["ts"] - start + event["dur"]))
        self.length = max(end for slices in self.ranks.values() for _, _, end in slices["calls"])


def nice_step(length):
    """Of the axis, in us: 1, 2 or 5 with zeros behind it, and at most ten of them."""
    return next(digit * 10**zeros for zeros in range(12) for digit in (1, 2, 5) if length <= 10 * digit * 10**zeros)


def time_text(us, step):
    return f"{us // 1000} ms" if step % 1000 == 0 else f"{us} us"


def draw(shown):
    height = 96 + BAND * len(shown.ranks)
    picture = Picture(WIDTH, height, "A round of a trace: steps and waits of each rank")
    scale = (WIDTH - LEFT - RIGHT) / shown.length
    at = lambda us: LEFT + us * scale
    step = nice_step(shown.length)
    for tick in range(0, int(shown.length) + 1, step):
        picture.line("axis", at(tick), 40, at(tick), height - 46)
        picture.text(at(tick), 30, time_text(tick, step), "quiet", "middle")
    for i, (rank, slices) in enumerate(sorted(shown.ranks.items())):
        y = 44 + i * BAND
        picture.text(20, y + 22, f"rank {rank}", "head")
        picture.text(20, y + 22 + LANE, "waits for", "quiet")
        for _, begin, end in slices["calls"]:
            picture.rect("band", at(begin), y, (end - begin) * scale, BAND - 10)
        for kind, lane in (("steps", 0), ("waits", 1)):
            for name, begin, end in slices[kind]:
                look = LOOKS[name] if kind == "steps" else "wait"
                width = max((end - begin) * scale, 0.6)
                picture.rect(look, at(begin), y + 6 + lane * LANE, width, LANE - 4, 2)
                if width > LETTER * len(name) + 6:
                    look = "" if look in ("box", "wait") else "on"
                    picture.text(at(begin) + width / 2, y + 20 + lane * LANE, name, look, "middle")
    y = height - 28
    for x, look, words in ((20, "route", "route"), (110, "send", "send"), (196, "box", "wait for all"),
                           (318, "receive", "lay out, sum")):
        picture.rect(look, x, y - 11, 14, 14, 2)
        picture.text(x + 20, y + 1, words, "quiet")
    picture.rect("wait", 430, y - 11, 14, 14, 2)
    picture.text(450, y + 1, "for which rank the step above waits", "quiet")
    return picture


def main(arguments):
    if len(arguments) not in (2, 3):
        raise SystemExit(__doc__)
    events = json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8"))["traceEvents"]
    shown = Round(events, int(arguments[2]) if len(arguments) == 3 else None)
    pathlib.Path(arguments[1]).write_text(draw(shown).svg(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
