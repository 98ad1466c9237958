"""benchmarks/gpu_bench.py: what it lists exists, and what it appends. No GPU is needed: scripts stand for the programs
that measure."""
import json
import os
import pathlib
import re
import subprocess
import sys

from support import FORMATS, FerryTestCase, ferry
from test_gpu import GPUS

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks/gpu_bench.py"


def gpu_bench(*arguments, **options):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **options)


def listed(ranks, *options):
    """[[program, argument, ...]]"""
    lines = gpu_bench(ranks, "--list", *options).stdout.splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


class ListTestCase(FerryTestCase):
    def test_programs_and_their_arguments_exist(self):
        built = (ROOT / "benchmarks/CMakeLists.txt").read_text(encoding="utf-8")
        for ranks in (1, 2, 4, 8):
            for program, *arguments in listed(ranks):
                name = pathlib.Path(program).name
                if name == "ferry":
                    continue
                with self.subTest(program=program, arguments=arguments):
                    self.assertEqual(program, f"build/cuda/benchmarks/{name}")
                    self.assertIn(name, re.search(r"ferry_gpu_benchmarks DEPENDS ([^)]*)", built).group(1).split())
                    (source,) = (ROOT / "benchmarks").glob(f"{name}.c*")
                    usage = re.search(rf"^//   {name} (.*?)(?:  .*)?$", source.read_text(encoding="utf-8"), re.M)
                    self.check_arguments(usage.group(1).split(), arguments)

    def check_arguments(self, usage, arguments):
        usage = [word for word in usage if not word.startswith("[--")]
        required = [word for word in usage if not word.startswith("[") and not word.endswith("]")]
        self.assertGreaterEqual(len(arguments), len(required))
        for place, argument in enumerate(arguments):
            if "FORMAT" in usage[min(place, len(usage) - 1)]:
                self.assertIn(argument.split(",")[0], [*FORMATS, "all"])
            else:
                word = usage[min(place, len(usage) - 1)]
                pairs = "N[/MAX]" in usage[:place + 1] or "/" in word
                numbers = argument.split("/") if pairs else [argument]
                self.assertTrue(all(number.isdigit() for number in numbers), argument)

    def test_options_of_ferry_exist(self):
        known = set(re.findall(r"--[a-z-]+", ferry("bench", "--help").stdout))
        for ranks in (2, 4, 8):
            commands = [arguments for program, *arguments in listed(ranks) if program == "build/cuda/ferry"]
            self.assertEqual(len(commands), 2)
            for arguments in commands:
                self.assertEqual(arguments[0], "bench")
                self.assertLessEqual({word for word in arguments if word.startswith("--")}, known)
                if GPUS == 0:  # bad values are refused before that: 2
                    self.assert_refused(ferry(*arguments), 1, "--backend cuda")

    def test_dev_lists_the_same_and_builds_nothing(self):
        done = subprocess.run([ROOT / "dev", "gpu-bench", "4", "--list"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, gpu_bench(4, "--list").stdout), done.stderr)

    def test_groups(self):
        self.assertEqual([pathlib.Path(program).name for program, *_ in listed(4, "--only", "floor,bench")],
                         ["ferry", "floor_bench"])
        for arguments, words in (((2, "--only", "memory"), ("memory", "floor")), ((0,), ("RANKS",)), ((), ("ranks",))):
            done = gpu_bench(*arguments)
            self.assertEqual(done.returncode, 2)
            for word in words:
                self.assertIn(word, done.stderr.splitlines()[-1])


class RecordsTestCase(FerryTestCase):
    """Over scripts in the place of the programs and of nvidia-smi."""

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(0o755)

    def measure(self, *arguments):
        self.script(self.folder / "bin/nvidia-smi",
                    '[ "$1" = topo ] && echo "GPU0 X NV18" || printf "NVIDIA H200\\nNVIDIA H200\\n"\n')
        environment = {**os.environ, "FERRY_COMMIT": "abc1234", "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        return gpu_bench(*arguments, "--build", self.folder, "--results", self.folder, env=environment)

    def records(self, name):
        return [json.loads(line) for line in (self.folder / name).read_text(encoding="utf-8").splitlines()]

    def test_records_say_when_where_and_what(self):
        self.script(self.folder / "benchmarks/floor_bench",
                    'echo "{\\"us\\": 1.5, \\"saw\\": \\"$CUDA_VISIBLE_DEVICES\\"}"\n')
        for _ in range(2):
            done = self.measure(2, "--only", "floor")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("floor_bench 7168 8 1", done.stdout.splitlines()[0])
        first, second = self.records("floor_2xh200.jsonl")
        self.assertEqual(first, second, "the second is appended")
        self.assertEqual(list(first), ["date", "hardware", "command", "commit", "us", "saw"])
        self.assertRegex(first["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertTrue(first["hardware"].startswith("2 x NVIDIA H200 of one host, NVLink, CUDA "), first["hardware"])
        self.assertTrue(first["command"].startswith("floor_bench 7168 8 1 "))
        self.assertTrue(first["commit"])
        self.assertEqual((first["us"], first["saw"]), (1.5, "0,1"))

    def test_what_a_record_says_of_itself_is_kept(self):
        self.script(self.folder / "ferry",
                    'echo "{\\"date\\": \\"now\\", \\"command\\": \\"$*\\", \\"n\\": 7}"\n')
        self.assertEqual(self.measure(2, "--only", "models").returncode, 0)
        (record,) = self.records("ferry_bench_2xh200_models.jsonl")
        self.assertEqual((record["date"], record["n"]), ("now", 7))
        self.assertTrue(record["command"].startswith("ferry bench --backend cuda --ranks 2 "), record["command"])
        self.assertNotIn("--json", record["command"])

    def test_the_machine_is_measured_once(self):
        self.script(self.folder / "benchmarks/cuda_bench",
                    'echo "{\\"wire_gb_per_s\\": 345.5, \\"wire_latency_us\\": 1.5, \\"copy_gb_per_s\\": 3000, '
                    '\\"given\\": \\"$1\\"}"\n')
        self.assertEqual(self.measure(2, "--only", "shapes").returncode, 0)
        first, *others = self.records("cuda_2xh200.jsonl")
        self.assertEqual(first["given"], "2")
        self.assertTrue(others)
        for record in others:
            self.assertEqual(record["given"], "--speeds=345.5,1.5,3000")
            self.assertTrue(record["command"].startswith("cuda_bench 2 "), record["command"])

    def test_stops_at_a_command_that_fails(self):
        self.script(self.folder / "benchmarks/cuda_bench", 'echo "{}"; [ "$5" != nvfp4 ]\n')
        done = self.measure(2, "--only", "rounds,shapes")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^gpu-bench: .*cuda_bench 2 7168 8 256 nvfp4 .*: exit code 1")
        self.assertEqual(len(self.records("cuda_2xh200.jsonl")), 2, "those of the commands before")

    def test_says_what_is_missing(self):
        for arguments, words in (((2, "--only", "floor"), "no .*/floor_bench: .*dev gpu-bench"),
                                 ((3,), "3 GPUs were asked for, and 2 were found")):
            done = self.measure(*arguments)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, words)
