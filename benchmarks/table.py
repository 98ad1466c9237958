#!/usr/bin/env python3
"""Markdown tables from the JSON lines of `ferry bench`: one for each command, in the order of the file.

usage: table.py FILE...
"""

import sys

import records


def microseconds(value):
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def megabytes(record):
    counted = record["bytes"]
    wire = sum(phase["wire"] for phase in counted.values() if isinstance(phase, dict))
    return f"{(counted.get('moved') or wire) / 1e6:.1f}"


def asked_cells(record):
    """Empty where it is as usual, so that a table has the columns of what was asked for only."""
    unusual = records.unusual_of(record)
    return {asked.column: str(unusual.get(name, "")) for name, asked in records.ASKED.items()}


def exchange_row(record):
    baseline = record.get("baseline")
    row = {
        "shape": records.shape_of(record),
        "operation": record["operation"],
        "format": record["format"],
        "combine": record["policy"]["combine"],
        "routing": record["policy"]["routing"],
        **asked_cells(record),
        "n": str(record["shape"]["tokens"]),
        "median us": microseconds(record["time_us"]["median"]),
        "p90 us": microseconds(record["time_us"]["p90"]),
        "p99 us": microseconds(record["time_us"]["p99"]) if record["backend"] == "cuda" else "",
        "MB": megabytes(record),
        "wire GB/s": f"{record['wire']['gb_per_s']:.0f}",
        "floor us": microseconds(record["floor_us"]),
        "x floor": f"{record['ratio_to_floor']:.2f}",
        "bound us": microseconds(record["bound_us"]) if "bound_us" in record else "",
        "x bound": f"{record['ratio_to_bound']:.2f}" if "bound_us" in record else "",
    }
    if baseline:
        name = records.baseline_name(record)
        row[f"{name} us"] = microseconds(baseline["time_us"]["median"])
        row[f"x {name}"] = f"{record['ratio_to_baseline']:.2f}"
    return row


def process_row(record):
    network, put = record["network_bytes"], record["plain_put"]["time_us"]
    return {
        "shape": records.shape_of(record),
        "transports": record["policy"].get("ucx_tls", "all"),
        "nodes": str(record["policy"]["nodes"]),
        "operation": record["operation"],
        "format": record["format"],
        "combine": record["policy"]["combine"],
        "routing": record["policy"]["routing"],
        **asked_cells(record),
        "n": str(record["shape"]["tokens"]),
        "best us": microseconds(record["time_us"]["min"]),
        "median us": microseconds(record["time_us"]["median"]),
        "p90 us": microseconds(record["time_us"]["p90"]),
        "plain put us": microseconds(put["median"]),
        "x put": f"{record['ratio_to_plain_put']:.2f}",
        "network MB": f"{network['formula'] / 1e6:.2f}" if network["formula"] else "",
        "left the host, MB": f"{network['left_the_interfaces'] / 1e6:.2f}" if "left_the_interfaces" in network else "",
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


def row_of(record):
    if records.is_codec(record):
        return codec_row(record)
    return process_row(record) if records.is_of_processes(record) else exchange_row(record)


def table(rows):
    titles = [title for title in dict.fromkeys(title for row in rows for title in row)
              if any(row.get(title) for row in rows)]
    varying = [title for title in titles if len({row.get(title) for row in rows}) > 1 or len(rows) == 1]
    fixed = [f"{title} {rows[0][title]}" for title in titles if title not in varying]
    lines = [f"all: {', '.join(fixed)}", ""] if fixed else []
    lines += ["| " + " | ".join(varying) + " |", "|" + "---|" * len(varying)]
    lines += ["| " + " | ".join(row.get(title, "") for title in varying) + " |" for row in rows]
    return "\n".join(lines)


def main(paths):
    if not paths:
        sys.exit(__doc__.strip())
    measured = [record for path in paths for record in records.load(path)]
    for command, lines in records.by_command(measured):
        print(f"\n`{command}`\n\n{table([row_of(record) for record in lines])}")


if __name__ == "__main__":
    main(sys.argv[1:])
