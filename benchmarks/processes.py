#!/usr/bin/env python3
"""Measures ranks that are processes on this machine, and appends the records to a file.

usage: processes.py [--ferry FERRY] [--oshrun OSHRUN] [--output FILE] [--turns N] [--seconds S] [PART...]
  threads      a pair on 4 processes that share memory, beside 4 threads of one process, by turns
  tcp          pairs on 2 and 4 processes over TCP alone, beside a plain put of the same bytes: time, and bytes on the wire
  simulation   what `ferry bench --simulate` computes, beside 2, 4 and 8 processes over TCP
Without a PART: all of them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

SHAPE = ["--experts", "64", "--top-k", "8", "--hidden", "7168"]
LAUNCH = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",  # containers
          "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}  # processes > cores
TCP = {"UCX_TLS": "tcp,self"}


class Bench:
    def __init__(self, given):
        self.ferry, self.oshrun, self.output, self.turns = given.ferry, given.oshrun, given.output, given.turns
        self.seconds = ["--seconds", str(given.seconds)]

    def run(self, command, environment, options):
        line = [*command, self.ferry, "bench", "--json", *SHAPE, *map(str, options)]
        done = subprocess.run(line, env=os.environ | LAUNCH | environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(line)}: exit code {done.returncode}\n{done.stderr}")
        return [json.loads(text) for text in done.stdout.splitlines()]

    def keep(self, records, command, environment):
        launched = " ".join([*(f"{name}={value}" for name, value in environment.items()), *command])
        for record in records:
            if launched:
                record["launched_by"] = launched
            if self.output:
                with open(self.output, "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
        return records

    def threads(self, ranks, *options):
        return self.keep(self.run([], {}, ["--backend", "cpu", "--ranks", ranks, *self.seconds, *options]), [], {})

    def processes(self, ranks, environment, *options):
        command = [self.oshrun, "-np", str(ranks)]
        measured = self.run(command, environment, ["--backend", "shmem", "--ranks", ranks, *self.seconds, *options])
        return self.keep(measured, command, environment)

    def simulated(self, ranks, *options):
        return self.run([], {}, ["--simulate", "--ranks", ranks, *options])[0]


def milliseconds(microseconds):
    return f"{microseconds / 1000:.1f}"


def megabytes(count):
    return f"{count / 1e6:.2f}"


def table(titles, rows):
    print("\n| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def beside_threads(bench):
    medians, best = {"threads": [], "processes": []}, {"threads": [], "processes": []}
    for _ in range(bench.turns):
        for name, measured in (("threads", bench.threads(4, "--tokens", 512)),
                               ("processes", bench.processes(4, {}, "--tokens", 512))):
            medians[name].append(measured[0]["time_us"]["median"])
            best[name].append(measured[0]["time_us"]["min"])
    rows = []
    for what, reduce, of in (("median of the medians", statistics.median, medians), ("best median", min, medians),
                             ("best", min, best)):
        one, other = reduce(of["threads"]), reduce(of["processes"])
        rows.append([what, milliseconds(one), milliseconds(other), f"{other / one:.2f}"])
    table(["ms of a pair", "4 threads", "4 processes", "ratio"], rows)


def over_tcp(bench):
    rows = []
    for ranks, nodes, options in ((2, 1, ["--tokens", "512"]), (4, 1, ["--tokens", "32,128,512"]),
                                  (4, 4, ["--tokens", "512", "--format", "bf16,mxfp8"]),
                                  (4, 2, ["--tokens", "128,512", "--combine", "exact"]),
                                  (4, 4, ["--tokens", "512", "--combine", "exact"])):
        for record in bench.processes(ranks, TCP, "--nodes", nodes, *options):
            wire, put = record["network_bytes"], record["plain_put"]["time_us"]
            rows.append([str(ranks), record["format"], record["policy"]["combine"], str(nodes), str(record["shape"]["tokens"]),
                         megabytes(wire["formula"]), megabytes(wire.get("left_the_interfaces", 0)),
                         f"{wire.get('ratio', 0):.3f}", milliseconds(put["median"]),
                         milliseconds(record["time_us"]["median"]), f"{record['time_us']['median'] / put['median']:.2f}",
                         f"{record['time_us']['min'] / put['min']:.2f}"])
    table(["ranks", "format", "combine", "nodes", "n", "MB by the formula", "MB that left", "x formula", "plain put ms", "pair ms",
           "x put", "best x best put"], rows)


def beside_simulation(bench):
    rows = []
    for ranks in (2, 4, 8):
        for combine in ("by_rank", "exact"):
            options = ["--tokens", 128, "--combine", combine]
            (record,) = bench.processes(ranks, TCP, *options)
            wire, put_us = record["network_bytes"], record["plain_put"]["time_us"]["median"]
            speed = wire["formula"] / ranks / put_us / 1000  # GB/s out of each rank, in a plain put
            of = bench.simulated(ranks, *options, "--ranks-per-node", 1, "--nic", speed)
            bytes_of_all = sum(of[phase]["nic"]["bytes_all_ranks"] for phase in ("dispatch", "combine"))
            least, took = of["pair_least_us"], record["time_us"]["median"]
            rows.append([str(ranks), combine, megabytes(bytes_of_all), megabytes(wire["formula"]),
                         megabytes(wire.get("left_the_interfaces", 0)), f"{speed:.2f}", milliseconds(least),
                         milliseconds(took), f"{took / least:.2f}"])
    table(["ranks", "combine", "MB simulated", "MB sent", "MB that left", "plain put GB/s", "least ms", "pair ms",
           "x least"], rows)


PARTS = {"threads": beside_threads, "tcp": over_tcp, "simulation": beside_simulation}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--ferry", default="build/release/ferry")
    parser.add_argument("--oshrun", default="oshrun")
    parser.add_argument("--output")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}; there are {', '.join(PARTS)}")
    for part in given.parts or PARTS:
        PARTS[part](Bench(given))


if __name__ == "__main__":
    main()
