#!/usr/bin/env python3
"""Measures every table of docs/performance.md that is of so many GPUs, and appends the records to the results.

usage: gpu_bench.py RANKS [--only NAME]... [--list] [--results FOLDER] [--build FOLDER]
  RANKS      GPUs that take part, the first ones; with 1 the tables of one GPU
  --only     a group of commands: of one GPU one_rank, memory, activation; of more rounds, shapes, few_blocks, engines,
             bench, models, floor
  --list     prints the commands, each under its group, and runs nothing
  --results  where the files NAME_RANKSxGPU.jsonl are (benchmarks/results)
  --build    where the programs were built (build/cuda), as `./dev gpu-bench` does before
A record has the date, the hardware, the command and the commit before what the program says. A command's records are
appended when it has ended well; the first that fails ends this. Where git knows no commit, FERRY_COMMIT says it.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SWEEP = "1 8 32 64 128 256 512 1024 4096 8192"
SHAPES = ("7168 8 256", "4096 8 128", "2880 4 128", "4096 2 8", "2048 8 128", "1024 22 512")
LARGE = SHAPES[:4]


def commands_of(ranks):
    """{group: (name of the results, [command])}: programs as of the folder they are built in."""
    def cuda(shape, format_name, blocks, tokens):
        return f"benchmarks/cuda_bench {ranks} {shape} {format_name} {blocks} {tokens}"

    if ranks == 1:
        return {
            "one_rank": ("cuda_{}", [
                cuda("7168 4 128", "fp8_block128", 0, "1 32 128 256 512 1024 2048 4096 8192"),
                cuda("7168 8 256", "fp8_block128", 0, "1 128 512 1024 2048 8192"),
                *(cuda(shape, "nvfp4", 0, "512 2048 8192") for shape in ("7168 4 128", "7168 8 256")),
                cuda("7168 8 256", "bf16", 0, "512 2048 8192"),
                *(cuda(shape, "fp8_block128", 0, "512 2048 8192") for shape in ("4096 2 8", "2880 4 128")),
                *(cuda(shape, "fp8_block128", 24, "128 1024 2048 8192") for shape in ("7168 4 128", "4096 2 8"))]),
            "memory": ("memory_{}", ["benchmarks/memory_bench 2 7168 8 256 128 256 512 1024 4096 8192",
                                  "benchmarks/memory_bench 4 7168 8 256 128 1024 4096"]),
            "activation": ("activation_{}", ["benchmarks/activation_bench all 2048 512 1024 4096"]),
        }
    bench = f"ferry bench --backend cuda --ranks {ranks}"
    operations = "--format fp8_block128 --operation dispatch,combine,pair"
    return {
        "rounds": ("cuda_{}", [cuda(SHAPES[0], "fp8_block128", 0, SWEEP),
                               cuda(SHAPES[0], "fp8_block128", 0, "1/8192 32/8192 128/8192"),  # room for many more
                               cuda(SHAPES[0], "nvfp4", 0, "128 1024 4096")]),
        "shapes": ("cuda_{}", [cuda(shape, "fp8_block128", 0, "128 1024 4096") for shape in SHAPES[1:]]),
        "few_blocks": ("cuda_{}", [cuda(SHAPES[0], "fp8_block128", 24, SWEEP),
                                *(cuda(SHAPES[0], name, 24, "128 1024 4096") for name in ("nvfp4", "bf16")),
                                *(cuda(shape, "fp8_block128", 24, "128 1024 4096") for shape in LARGE[1:]),
                                cuda(SHAPES[0], "fp8_block128", 48, "128 1024 4096")]),
        "engines": ("engines_{}", [
            *(cuda(SHAPES[0], f"fp8_block128,{asked}", 0, SWEEP)
              for asked in ("replay", "rows=by_source", "given,rows=by_source", "given,rows=by_source,replay")),
            *(cuda(SHAPES[0], f"fp8_block128,{asked}", 0, "128 1024 4096") for asked in ("rows=padded", "rows=in_place")),
            cuda(SHAPES[0], "bf16,rows=by_source", 0, "4096"), cuda(SHAPES[0], "bf16,rows=by_source,replay", 0, "4096"),
            *(cuda(SHAPES[0], f"fp8_block128,{asked}", 24, "128 1024 4096")
              for asked in ("rows=by_source", "given,rows=by_source", "replay")),
            cuda(SHAPES[0], "fp8_block128,given,rows=by_source", 48, "128 1024 4096"),
            *(cuda(SHAPES[0], asked, "24/0", "128 1024 4096")  # the second halves take the whole GPU
              for asked in ("fp8_block128,given,rows=by_source", "fp8_block128")),
            *(cuda(SHAPES[0], f"fp8_block128,{rows}results={results}", 0, "128 1024 4096")
              for rows in ("", "rows=by_source,") for results in ("bf16", "fp8_block128", "mxfp8", "nvfp4"))]),
        "bench": ("ferry_bench_{}", [f"{bench} --hidden 7168 --experts 256 --top-k 8 {operations} --tokens "
                                  f"{SWEEP.replace(' ', ',')} --baseline --seconds 0.1"]),
        "models": ("ferry_bench_{}_models", [f"{bench} --model all --routing uniform,zipf {operations} "
                                          "--tokens 8,128,4096 --seconds 0.03"]),
        "floor": ("floor_{}", ["benchmarks/floor_bench 7168 8 1 32 128 256 512 1024 4096"]),
    }


def stop(why):
    sys.exit(f"gpu-bench: {why}")


def output_of(*command):
    """What a command prints; nothing where there is no such program, or it fails."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """Of HEAD, and whether the tree differs from it, results aside."""
    head = output_of("git", "rev-parse", "--short", "HEAD") or os.environ.get("FERRY_COMMIT", "")
    if not head:
        stop("no commit: this is no clone with its history. Set FERRY_COMMIT to that of the sources")
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return head + (" with changes" if changed else "")


def gpus_of(ranks):
    """The numbers of the first GPUs that this process sees, as CUDA_VISIBLE_DEVICES takes them, and their name."""
    names = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(names))))).split(",")
    if len(names) < ranks or len(visible) < ranks:
        stop(f"{ranks} GPUs were asked for, and {min(len(names), len(visible))} were found")
    return ",".join(visible[:ranks]), names[0]


def hardware(ranks, name):
    compiler = output_of("nvcc", "--version") or output_of("/usr/local/cuda/bin/nvcc", "--version")
    found = re.search(r"release (\S+),", compiler) or re.search(r"CUDA Version: *(\S+)", output_of("nvidia-smi"))
    links = ", NVLink" if re.search(r"\bNV\d+\b", output_of("nvidia-smi", "topo", "-m")) else ""
    where = " of one host" + links if ranks > 1 else ""
    return f"{ranks} x {name}{where}, CUDA {found.group(1) if found else 'unknown'}"


SPEEDS = ("wire_gb_per_s", "wire_latency_us", "copy_gb_per_s")


def records_of(line, build, environment, speeds):
    """Runs a command and returns what its lines of JSON say. `speeds`: records of cuda_bench before this one, which
    measures the machine once."""
    program, *arguments = shlex.split(line)
    if program.endswith("/cuda_bench") and speeds:
        arguments.insert(0, "--speeds=" + ",".join(str(speeds[-1][name]) for name in SPEEDS))
    if not (build / program).exists():
        stop(f"no {build / program}: `./dev gpu-bench` builds it")
    more = ["--json"] if program == "ferry" else []
    records = []
    with subprocess.Popen([build / program, *arguments, *more], stdout=subprocess.PIPE, text=True,
                          env=os.environ | environment) as running:
        for text in running.stdout:
            if text.startswith("{"):
                records.append(json.loads(text))
                if sys.stdout.isatty():
                    print(f"   {len(records)} records", end="\r", flush=True)
    if running.returncode != 0:
        stop(f"{line}: exit code {running.returncode}; its records are left out, those before it are kept")
    speeds += [record for record in records[-1:] if all(name in record for name in SPEEDS)]
    return records or stop(f"{line}: it printed no record")


def measure(groups, given):
    devices, name = gpus_of(given.ranks)
    machine = f"{given.ranks}x{name.removeprefix('NVIDIA ').split()[0].lower()}"
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    same = {"date": date, "hardware": hardware(given.ranks, name)}  # a record that has them keeps its own
    of, speeds = commit(), []
    for group, (results, commands) in groups.items():
        path = given.results / f"{results.format(machine)}.jsonl"
        for line in commands:
            print(f"== {group}: {line}", flush=True)
            begin = time.monotonic()
            records = records_of(line, given.build, {"CUDA_VISIBLE_DEVICES": devices}, speeds)
            ran = {"command": line.removeprefix("benchmarks/"), "commit": of}
            with open(path, "a", encoding="utf-8") as file:
                for record in records:
                    file.write(json.dumps(same | ran | record | ran) + "\n")
            print(f"   {len(records)} records to {path}, {time.monotonic() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].strip())
    parser.add_argument("ranks", type=int)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda")
    given = parser.parse_args()
    if given.ranks < 1:
        parser.error(f"RANKS is {given.ranks}; it must be 1 or more")
    groups = commands_of(given.ranks)
    wanted = [name for each in given.only for name in each.split(",")]
    for name in wanted:
        if name not in groups:
            parser.error(f"--only {name}: the groups of {given.ranks} GPUs are {', '.join(groups)}")
    groups = {name: group for name, group in groups.items() if not wanted or name in wanted}
    if not given.list:
        return measure(groups, given)
    for name, (_, commands) in groups.items():
        print(f"# {name}")
        for line in commands:
            print(f"{os.path.relpath(given.build, ROOT)}/{line}")


if __name__ == "__main__":
    main()
