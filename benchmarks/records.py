"""The JSON lines of `ferry bench`, as table.py and plots.py read them."""

import json
import typing

KINDS = {"cuda": "GPUs", "shmem": "processes", "processes": "processes"}


def load(path):
    """Every record of the file that is one measured line: others (of older or other tools) are left out."""
    with open(path, encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if "operation" in record and "time_us" in record]


def load_chains(path):
    """The lines of cuda_bench: times of rounds that follow each other in a CUDA graph, of as many tokens as fit."""
    with open(path, encoding="utf-8") as file:
        chains = [record for record in map(json.loads, file) if "pair_us" in record and "n" in record]
    return [record for record in chains if record.get("max_tokens", record["n"]) == record["n"]]


def is_codec(record):
    return "bf16_gb_per_s" in record


def is_of_processes(record):
    """Beside a plain put of its bytes, in place of a floor."""
    return "plain_put" in record


def shape_of(record):
    shape = record["shape"]
    name = shape.get("model", f"hidden {shape['hidden']}, top-{shape['top_k']} of {shape['experts']}")
    return f"{name}, {shape['ranks']} {KINDS.get(record['backend'], 'ranks')}"


class Asked(typing.NamedTuple):
    """What a line may be asked for beside format, combine and routing."""

    usual: object  # what older records mean that do not say it
    words: str  # in a title
    column: str  # of a table


ASKED = {"rows": Asked("by_expert", "rows {}", "rows"), "results": Asked("bf16", "results in {}", "results"),
         "given": Asked("bf16", "tokens {}", "given"), "dispatch": Asked("fresh", "{}", "dispatch"),
         "message_copies": Asked(2, "{} message copies", "copies"), "max_blocks": Asked(0, "{} blocks", "max blocks"),
         "workers": Asked(1, "{} workers", "workers")}


def asked_of(record):
    """Records of which this differs are of different lines."""
    return tuple(record["policy"].get(name, one.usual) for name, one in ASKED.items())


def unusual_of(record):
    """{name: value} of what is not as usual."""
    return {name: value for name, value in zip(ASKED, asked_of(record)) if value != ASKED[name].usual}


def words_of(asked):
    """What is not as usual in one asked_of(), for a title."""
    return [ASKED[name].words.format(value) for name, value in zip(ASKED, asked) if value != ASKED[name].usual]


def baseline_name(record):
    """MPI or NCCL."""
    return record["baseline"]["name"].split(",")[0].split("_")[0]


def by_command(records):
    """[(command, its records)], in the order of the file. A command measured again replaces nothing: all are there."""
    groups = {}
    for record in records:
        groups.setdefault(record["command"], []).append(record)
    return list(groups.items())
