#!/usr/bin/env python3
"""Markdown tables from the JSON lines of `ferry bench`: one for each command, in the order of the file.

usage: table.py FILE...
"""

import json
import sys


def microseconds(value):
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def shape_of(record):
    shape = record["shape"]
    name = shape.get("model", f"hidden {shape['hidden']}, top-{shape['top_k']} of {shape['experts']}")
    return f"{name}, {shape['ranks']} ranks"


def exchange_row(record):
    baseline = record.get("baseline")
    return {
        "shape": shape_of(record),
        "operation": record["operation"],
        "format": record["format"],
        "combine": record["policy"]["combine"],
        "routing": record["policy"]["routing"],
        "n": str(record["shape"]["tokens"]),
        "median us": microseconds(record["time_us"]["median"]),
        "p90 us": microseconds(record["time_us"]["p90"]),
        "MB": f"{record['bytes']['moved'] / 1e6:.1f}",
        "wire GB/s": f"{record['wire']['gb_per_s']:.0f}",
        "floor us": microseconds(record["floor_us"]),
        "x floor": f"{record['ratio_to_floor']:.2f}",
        "MPI us": microseconds(baseline["time_us"]["median"]) if baseline else "",
        "x MPI": f"{record['ratio_to_baseline']:.2f}" if baseline else "",
    }


def codec_row(record):
    return {
        "operation": record["operation"],
        "format": record["format"],
        "hidden": str(record["shape"]["hidden"]),
        "n": str(record["shape"]["tokens"]),
        "median us": microseconds(record["time_us"]["median"]),
        "GB/s of bf16": f"{record['bf16_gb_per_s']:.2f}",
    }


def table(rows):
    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    varying = [title for title in titles if len({row[title] for row in rows}) > 1 or len(rows) == 1]
    fixed = [f"{title} {rows[0][title]}" for title in titles if title not in varying]
    lines = [f"all: {', '.join(fixed)}", ""] if fixed else []
    lines += ["| " + " | ".join(varying) + " |", "|" + "---|" * len(varying)]
    lines += ["| " + " | ".join(row[title] for title in varying) + " |" for row in rows]
    return "\n".join(lines)


def main(paths):
    if not paths:
        sys.exit(__doc__.strip())
    by_command = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for record in map(json.loads, file):
                row = codec_row(record) if "bf16_gb_per_s" in record else exchange_row(record)
                by_command.setdefault(record["command"], []).append(row)
    for command, rows in by_command.items():
        print(f"\n`{command}`\n\n{table(rows)}")


if __name__ == "__main__":
    main(sys.argv[1:])
