#!/usr/bin/env python3
"""Draws the pictures of the pages: the same bytes in every run, with the standard library alone.

usage: draw_docs.py FOLDER
  FOLDER/exchange.svg      a dispatch and a combine of three ranks (README.md)
  FOLDER/house.svg         the rooms of the code, as check_dependencies.py allows them (docs/architecture.md)
  FOLDER/handles.svg       handles of three layers, forward and backward (docs/handles.md)
  FOLDER/row-orders.svg    the rows of one rank in each order (docs/row-orders.md)
  FOLDER/gpu-grid.svg      which blocks of a kernel do what (docs/gpu/how-it-works.md)
  FOLDER/gpu-timeline.svg  a round of two GPUs in time (docs/gpu/how-it-works.md)
"""

import pathlib
import re
import sys

import check_dependencies
from picture import Picture

# ---- a dispatch and a combine

RANKS, EXPERTS_OF_RANK = 3, 2
# The two experts of each token, by its source rank. a0 names two experts of one rank.
CHOICES = {"a0": (2, 3), "a1": (0, 4), "b0": (1, 5), "b1": (3, 4), "c0": (0, 2), "c1": (4, 5)}
ROW, GAP = 24, 30


def owner(expert):
    return expert // EXPERTS_OF_RANK


def rows_of(expert):
    """The tokens of an expert's rows, by source and token."""
    return [token for token in sorted(CHOICES) if expert in CHOICES[token]]


def ranks_of(token):
    return sorted({owner(expert) for expert in CHOICES[token]})


class Places:
    """Where tokens, messages and rows stand: a band for each rank."""

    def __init__(self, top):
        self.band, self.token, self.message, self.row = {}, {}, {}, {}
        y = top
        for rank in range(RANKS):
            experts = range(rank * EXPERTS_OF_RANK, (rank + 1) * EXPERTS_OF_RANK)
            tokens = [token for token in sorted(CHOICES) if token[0] == "abc"[rank]]
            height = sum(len(rows_of(expert)) for expert in experts) * ROW + 34
            self.band[rank] = (y, height)
            for i, token in enumerate(tokens):
                self.token[token] = y + height / 2 + (i - 0.5) * 44
            at = y + 12
            for expert in experts:
                for token in rows_of(expert):
                    self.row[token, expert] = at + ROW / 2
                    at += ROW
                at += 10
            coming = [token for token in sorted(CHOICES) if rank in ranks_of(token)]
            for i, token in enumerate(coming):
                self.message[token, rank] = y + height * (i + 1) / (len(coming) + 1)
            y += height + GAP
        self.bottom = y - GAP


def draw_exchange():
    places = Places(76)
    picture = Picture(1080, int(places.bottom) + 78, "A dispatch and a combine of three ranks")
    token_x, message_x, row_x, sum_x, done_x = 92, 316, 400, 716, 956
    for x, words in ((token_x + 24, "tokens"), (message_x - 24, "dispatch: messages"), (row_x + 92, "rows, by expert"),
                     (row_x + 240, "experts"), (sum_x + 68, "combine: partial sums"), (done_x + 30, "sums")):
        picture.text(x, 30, words, "head", "middle")
    for x, words in ((message_x - 24, "encoded once, one for each rank"), (row_x + 92, "one for each (token, k)"),
                     (row_x + 240, "your kernels"), (sum_x + 68, "one row for each (token, rank)")):
        picture.text(x, 50, words, "quiet", "middle")
    for rank, (y, height) in places.band.items():
        picture.rect("band", 14, y, 1052, height, 6)
        picture.text(24, y + height / 2 + 5, f"rank {rank}", "head")
        picture.rect("box", row_x + 198, y + 10, 84, height - 20)
        picture.text(row_x + 240, y + height / 2 + 5, "matmuls", "", "middle")
    for token in sorted(CHOICES):
        look, y = token[0], places.token[token]
        for rank in ranks_of(token):
            at = places.message[token, rank]
            picture.curve(f"wire s{look}", token_x + 48, y, message_x, at)
            picture.curve(f"wire s{look}", sum_x + 12, at, done_x, y)
            for expert in CHOICES[token]:
                if owner(expert) == rank:
                    picture.curve(f"copy s{look}", message_x + 12, at, row_x + 40, places.row[token, expert])
                    picture.curve(f"copy s{look}", row_x + 282, places.row[token, expert], sum_x, at)
    for (token, _), y in places.message.items():
        picture.rect(token[0], message_x, y - 7, 12, 14)
        picture.rect(token[0], sum_x, y - 7, 12, 14)
    for (token, expert), y in places.row.items():
        picture.label(token[0], row_x + 40, y - ROW / 2 + 1, 108, ROW - 3, f"{token}, k = {CHOICES[token].index(expert)}")
        picture.line("line", row_x + 148, y, row_x + 198, y)
        if token == rows_of(expert)[0]:
            picture.text(row_x + 154, y + 4 + ROW * (len(rows_of(expert)) - 1) / 2 - 9, f"e{expert}", "quiet")
    for token, y in places.token.items():
        picture.label(token[0], token_x, y - 15, 48, 30, token)
        picture.label(token[0], done_x, y - 15, 60, 30, token)
    named = sum(len(experts) for experts in CHOICES.values())
    sent = sum(len(ranks_of(token)) for token in CHOICES)
    here = sum("abc".index(token[0]) in ranks_of(token) for token in CHOICES)
    picture.text(24, places.bottom + 30, f"{len(CHOICES)} tokens name {named} experts and become {sent} messages, of which {here} stay on their rank: "
                 "a0 names two experts of rank 1, so it goes there once and fills two rows.")
    picture.text(24, places.bottom + 52, "Rows are ordered by expert, source rank, token and k, the same in every run. "
                 "On the way back each rank adds up its own rows of a token.", "quiet")
    return picture


# ---- the rooms

ROOMS = {
    "tool": "the ferry command", "src/conformance": "the suite that any world passes", "src/base": "threads, memory",
    "src/cpu": "threads, processes", "src/shmem": "processes, OpenSHMEM", "src/cuda": "GPUs of one host",
    "src/nvshmem": "GPUs of many hosts", "src/exchange": "the front of an exchange", "src/net": "how processes meet",
    "src/activation": "what SwiGLU refuses",
    "include/ferry/cuda": "public, for GPUs", "include/ferry/detail/cuda": "text of the kernels",
    "include/ferry/detail/nvshmem": "puts from kernels", "include/ferry/detail/protocol": "who writes what, when",
    "include/ferry/detail/formats": "token formats", "include/ferry/detail/layout": "where things lie",
    "include/ferry/detail/activation": "SwiGLU", "include/ferry/detail/base": "atomics, waits", "include": "public headers",
}


def storeys_of(layers):
    """{room: storey}, each above all that it may include."""
    allowed = {room: set(ROOMS) - {room} if below is None else below for room, below in layers if room in ROOMS}
    storeys = {}
    while len(storeys) < len(allowed):
        ready = [room for room, below in allowed.items()
                 if room not in storeys and all(other in storeys for other in below if other in allowed)]
        if not ready:
            raise SystemExit(f"rooms include each other: {sorted(set(allowed) - set(storeys))}")
        storeys.update({room: 1 + max((storeys[other] for other in allowed[room] if other in allowed), default=-1)
                        for room in ready})
    return storeys


def draw_house():
    storeys = storeys_of(check_dependencies.LAYERS)
    top = max(storeys.values())
    picture = Picture(1080, 92 + 58 * (top + 1), "The rooms of the code")
    picture.text(24, 30, "Rooms include rooms of floors below them, never above. Which ones: tools/check_dependencies.py", "head")
    for storey in range(top + 1):
        rooms = [room for room in ROOMS if storeys.get(room) == storey]
        y = 50 + 58 * (top - storey)
        width = min(330, (1032 - 12 * (len(rooms) - 1)) / len(rooms))
        left = 540 - (width * len(rooms) + 12 * (len(rooms) - 1)) / 2
        for i, room in enumerate(rooms):
            look = "a" if room.startswith("include") else "c" if room.startswith("src") else "b"
            x = left + i * (width + 12)
            picture.rect(look, x, y, width, 46, 5)
            picture.text(x + width / 2, y + 20, room + ("/ferry" if room == "include" else ""), "on", "middle")
            picture.text(x + width / 2, y + 37, ROOMS[room], "on", "middle")
    x, y = 24, 50 + 58 * (top + 1) + 20
    for look, words in (("a", "installed; user programs compile it"), ("c", "compiled once, into the libraries"), ("b", "the tool")):
        picture.rect(look, x, y - 11, 14, 14)
        picture.text(x + 20, y + 1, words, "quiet")
        x += 44 + 6.4 * len(words)
    return picture


# ---- the grid

# Lines of the tables in that test, which are what the launch policies choose.
POLICIES = pathlib.Path(__file__).resolve().parent.parent / "tests/unit/cuda_policy_table_test.cpp"
DISPATCHES = ("4 x 1 fp8 7168 top-8", "4 x 128 fp8 7168 top-8", "4 x 4096 fp8 7168 top-8", "2 x 4096 fp8 7168 top-8 max 24")
COMBINES = ("4 x 1 fp8 7168 top-8", "4 x 128 fp8 7168 top-8", "4 x 4096 fp8 7168 top-8", "2 x 4096 fp8 7168 top-8 max 24")
DISPATCH = re.compile(r"(\d+) blocks( in pairs)?: (\d+) route[^,]*, (\d+) send x \d+( by stores)?,")
COMBINE = re.compile(r"(\d+) blocks: (\d+) send x \d+, from block (\d+) receive")


def grids():
    """[(title, what is said of it, [(role, blocks)])]"""
    text = POLICIES.read_text(encoding="utf-8")
    found = []
    for operation, table, lines in (("dispatch", "kDispatchTable", DISPATCHES), ("combine", "kCombineTable", COMBINES)):
        cases = dict(line.split(" | ", 1) for line in text.split(table + " = ", 1)[1].split(')"')[0].splitlines()[1:])
        for line in lines:
            ranks, tokens, most = re.fullmatch(r"(\d+) x (\d+) .*?(?: max (\d+))?", line).groups()
            regime, policy = cases[line].split(" | ")
            title = f"{operation}, {tokens} token{'s' * (tokens != '1')}, {ranks} GPUs" + (f", max_blocks = {most}" if most else "")
            if operation == "dispatch":
                blocks, pairs, routing, senders, stores = DISPATCH.match(policy).groups()
                roles = [("route", int(routing)), ("send", int(senders)), ("receive", int(blocks) - int(routing) - int(senders))]
                said = [f"{blocks} logical blocks" + (", two in each thread block" if pairs else ""), "by stores" if stores else "by bulk copies"]
            else:
                blocks, senders, first = (int(number) for number in COMBINE.match(policy).groups())
                both = senders - first
                roles = [("both", both)] if both else [("send", senders), ("receive", blocks - senders)]
                said = [f"{blocks} blocks" + (", each sends, and sums between two sends" if both else "")]
            found.append((title, f"{regime}: " + ", ".join(said), roles))
    return found


ROLES = (("route", "route: fill the routing table, send counts"), ("send", "send: messages, or results"),
         ("receive", "receive: lay rows out, or sum results"), ("both", "send and receive"))


def draw_grid():
    bars = grids()
    picture = Picture(1080, 44 + 64 * len(bars) + 84, "Which blocks do what")
    picture.text(24, 32, "Blocks of a kernel, by role: H200s, hidden 7168, top-8 of 256, FP8 (the width of a bar is in proportion)", "head")
    for i, (title, launched, roles) in enumerate(bars):
        y = 52 + 64 * i
        picture.text(24, y + 14, title, "")
        picture.text(1056, y + 14, launched, "quiet", "end")
        total = sum(blocks for _, blocks in roles)
        x, room = 24, 1032 - 3 * (len(roles) - 1)
        least = 34
        wide = sum(blocks for _, blocks in roles if room * blocks / total >= least)
        spare = room - least * sum(1 for _, blocks in roles if room * blocks / total < least)
        for role, blocks in roles:
            width = spare * blocks / wide if room * blocks / total >= least else least
            picture.label(role, x, y + 22, width, 26, f"{blocks}")
            x += width + 3
    x, y = 24, 52 + 64 * len(bars) + 24
    for role, words in ROLES:
        picture.rect(role, x, y - 11, 14, 14)
        picture.text(x + 20, y + 1, words, "quiet")
        x += 44 + 6.2 * len(words)
    picture.text(24, y + 30, "In a dispatch the first blocks route, the next ones send, the others receive. "
                 "In a combine the first blocks send, the others sum.", "quiet")
    return picture


# ---- a round in time

# (lane, [(look, begin, end, words)]), not to scale.
LANES = (
    ("GPU 0: route", (("route", 0, 17, "count ids per expert"), ("route", 17, 28, "store table"))),
    ("GPU 0: send", (("send", 3, 14, "encode t0"), ("send", 18, 29, "encode t1"), ("send", 33, 44, "encode t2"))),
    ("GPU 1: receive", (("wait", 2, 23, "wait for counts"), ("receive", 23, 32, "row starts"),
                        ("receive", 33, 42, "rows of t0"), ("receive", 42, 51, "rows of t1"), ("receive", 53, 62, "rows of t2"))),
    ("GPU 1: your kernels", (("both", 63, 71, "matmuls"),)),
    ("GPU 1: send", (("send", 78, 85, "sum t0"), ("send", 86, 92, "sum t1"))),
    ("GPU 0: receive", (("wait", 78, 89, "wait"), ("receive", 89, 96, "sum t0"), ("receive", 97, 103, "sum t1"))),
)
# (from lane, at, to lane, at, words)
SIGNALS = ((0, 17, 2, 23, "counts"), (0, 28, 2, 33, "routed"), (1, 14, 2, 27, "arrived[t0]"), (1, 29, 2, 40, "arrived[t1]"),
           (1, 44, 2, 53, "arrived[t2]"), (4, 85, 5, 89, "result_arrived[t0]"), (4, 92, 5, 97, "[t1]"))


def draw_timeline():
    left, scale, lane_height = 172, 8.6, 68
    picture = Picture(1080, 52 + lane_height * len(LANES) + 44, "A round in time")
    picture.text(24, 30, "One round: tokens t0, t1, t2 go from GPU 0 to GPU 1 and their results back (not to scale)", "head")

    def x_of(at):
        return left + scale * at

    for at, words in ((0, "dispatch"), (62.5, "experts"), (71.6, "combine")):
        picture.line("axis", x_of(at), 44, x_of(at), 52 + lane_height * len(LANES))
        picture.text(x_of(at) + 4, 54, words, "quiet")
    for source, begin, to, end, words in SIGNALS:
        y1, y2 = 64 + lane_height * source + 26, 64 + lane_height * to
        picture.arrow(x_of(begin), y1, x_of(end), y2)
        if words:
            picture.text(x_of(begin) - 5, y1 + 17, words, "quiet", "end")
    for i, (lane, parts) in enumerate(LANES):
        y = 64 + lane_height * i
        picture.text(24, y + 17, lane, "")
        for look, begin, end, words in parts:
            width = x_of(end) - x_of(begin) - 2
            if look == "wait":
                picture.rect(look, x_of(begin), y, width, 26)
                picture.text(x_of(begin) + width / 2, y + 17, words, "quiet", "middle")
            else:
                picture.label(look, x_of(begin), y, width, 26, words)
    picture.text(24, 52 + lane_height * len(LANES) + 26, "Senders do not wait for the routing table: the slot of a message is (source rank, token). "
                 "Receivers find every row from the counts alone.", "quiet")
    return picture


# ---- handles


def draw_handles():
    left, step, width = 132, 152, 138
    picture = Picture(1080, 250, "Handles of three layers, forward and backward")
    picture.text(24, 30, "Each layer's forward dispatch leaves a handle; the backward pass gives them back in reverse order", "head")
    picture.text(24, 78, "calls")
    picture.text(24, 168, "handles alive")
    for layer, look in enumerate(("route", "send", "receive")):
        forward, backward = left + step * layer, left + step * (5 - layer)
        for x, words in ((forward, f"dispatch {layer} by ids"), (backward, f"dispatch {layer} again")):
            picture.label(look, x, 54, width, 18, words)
            picture.label(look, x, 76, width, 18, f"combine {layer}")
        begin, end, y = forward + width / 2, backward + width / 2, 190 - 34 * layer
        picture.arrow(begin, 96, begin, y)
        picture.arrow(end, y, end, 96)
        picture.label(look, begin - 8, y, end - begin + 16, 20, f"handle {layer}")
    picture.text(24, 234, "A handle is the caller's memory: any number may be alive, and each may be used any number of times. "
                 "On CPU ranks only forward dispatches route.", "quiet")
    return picture


# ---- orders of rows


def draw_row_orders():
    """What rank 1 of exchange.svg finds: its experts are 2 and 3."""
    top, rank, width, stride = 96, 1, 150, 4
    experts = range(rank * EXPERTS_OF_RANK, (rank + 1) * EXPERTS_OF_RANK)
    picture = Picture(1080, 366, "The rows of rank 1 in each order")
    picture.text(24, 30, "The rows of rank 1 of the picture in the README, which owns experts 2 and 3, in each order", "head")

    def column(x, name, what):
        picture.text(x, 62, name, "head")
        picture.text(x, 82, what, "quiet")

    def row(x, index, token, words):
        picture.text(x + 12, top + index * ROW + 17, str(index), "quiet", "end")
        if token:
            picture.label(token[0], x + 20, top + index * ROW + 1, width - 20, ROW - 3, words)
        else:
            picture.rect("wait", x + 20, top + index * ROW + 1, width - 20, ROW - 3)

    column(24, "by_expert", "expert, source, token")
    at = 0
    for expert in experts:
        for token in rows_of(expert):
            row(24, at, token, f"{token} for expert {expert}")
            at += 1
    column(270, "padded", f"each expert at its stride, here {stride}")
    for local, expert in enumerate(experts):
        for i in range(stride):
            token = rows_of(expert)[i] if i < len(rows_of(expert)) else None
            row(270, local * stride + i, token, f"{token} for expert {expert}")
    column(530, "by_source", "one row for each (token, rank)")
    for i, token in enumerate(token for token in sorted(CHOICES) if rank in ranks_of(token)):
        here = [str(expert - experts[0]) if expert in experts else "-1" for expert in CHOICES[token]]
        row(530, i, token, f"{token}: ids {', '.join(here)}")
    column(790, "in_place", "no row: the slots, and an index")
    slots = sorted(CHOICES)
    for i, token in enumerate(slots):
        row(890, i, token if rank in ranks_of(token) else None, token)
    gather = [token for expert in experts for token in rows_of(expert)]
    for i, token in enumerate(gather):
        y = top + i * ROW + ROW / 2
        picture.text(790, y + 5, f"gather[{i}]", "quiet")
        picture.curve(f"copy s{token[0]}", 850, y, 908, top + slots.index(token) * ROW + ROW / 2)
    picture.text(24, 318, "Rows of by_expert, and the gather of in_place, stand for the same (token, expert) pairs. Dashed rows and slots hold "
                 "nothing of this round.")
    picture.text(24, 342, "A row of by_source says with row_topk_ids which of the rank's experts its token names, by their local number.", "quiet")
    return picture


PICTURES = {"exchange.svg": draw_exchange, "house.svg": draw_house, "handles.svg": draw_handles, "row-orders.svg": draw_row_orders,
            "gpu-grid.svg": draw_grid, "gpu-timeline.svg": draw_timeline}


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
