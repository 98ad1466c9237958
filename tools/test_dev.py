#!/usr/bin/env python3
"""Tests of ./dev: what it refuses, before it installs or builds anything."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def dev(*arguments):
    return subprocess.run([ROOT / "dev", *arguments], capture_output=True, text=True, timeout=60, check=False)


class RefusalTests(unittest.TestCase):
    def assert_refused(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for word in words:
            self.assertIn(word, done.stderr)

    def test_presets(self):
        for arguments in (["build", "nosuch"], ["test", "nosuch"], ["test", "release", "nosuch"]):
            with self.subTest(arguments=arguments):
                done = dev(*arguments)
                self.assert_refused(done, "dev: there is no preset nosuch", "release, debug, tsan, cuda-compile, cuda")
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_words_that_mean_nothing(self):
        for command in ("gpu-test", "gpu-sanitize", "plots", "setup", "format"):
            with self.subTest(command=command):
                self.assert_refused(dev(command, "nosuch"), f"dev: {command} takes no argument: nosuch")
        self.assert_refused(dev("build", "release", "extra"), "dev: build takes one preset: extra")

    def test_steps(self):
        for arguments in (["sizes", "nosuch"], ["--all", "sizes", "nosuch"], ["--but", "nosuch"]):
            self.assert_refused(dev("check", *arguments), "dev: check has no step nosuch; there are format dependencies")

    def test_a_preset_without_tests(self):
        self.assert_refused(dev("test", "cuda-compile"), "dev: preset cuda-compile has no tests")

    def test_commands(self):
        for word, hint in (("nonsense", ""), ("tets", "; did you mean test?"), ("gpubench", "; did you mean gpu-bench?")):
            done = dev(word)
            self.assert_refused(done)
            self.assertEqual(done.stderr, f"dev: no command {word}{hint}; ./dev help lists them\n")


class HelpTests(unittest.TestCase):
    def test_by_a_link(self):
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder, "dev")
            link.symlink_to(ROOT / "dev")
            done = subprocess.run([link, "help"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, dev().stdout)

    def test_of_wheel_needs_nothing(self):
        function = re.search(r"^command_wheel\(\) {$.*?^}$", (ROOT / "dev").read_text(), re.MULTILINE | re.DOTALL).group()
        script = f'need() {{ echo needs; exit 1; }}; python3() {{ echo "$@"; }}\n{function}\ncommand_wheel -v --help'
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "-m pip wheel --help\n"))


class SetupTests(unittest.TestCase):
    def test_it_installs_what_pip_needs(self):
        page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        listed = (ROOT / "tools" / "packages.txt").read_text(encoding="utf-8")
        named = set(re.findall(r"python3-\w+|[\w-]+-dev\b", re.search(r"on Debian (`.*)", page).group(1)))
        installed = re.findall(r"^(?:build|check) (\S+)$", listed, re.MULTILINE)
        self.assertLessEqual({"python3-venv", "python3-dev", "libfmt-dev", "libcli11-dev"}, named)
        self.assertLessEqual(named, set(installed))

    def test_pages_have_it_before_pip(self):
        for page in ("README.md", "docs/python.md"):
            text = (ROOT / page).read_text(encoding="utf-8")
            self.assertTrue(any(re.search(r"\./dev setup.*pip install \.", part, re.DOTALL)
                                for part in text.split("\n\n")), page)


class PartsTests(unittest.TestCase):
    """Parts of ./dev, in an empty folder: the functions that would build or look are in place of themselves."""

    def said(self, call, function):
        functions = (ROOT / "dev").read_text(encoding="utf-8").partition("\ncommand=")[0]
        with tempfile.TemporaryDirectory() as outer:
            folder = pathlib.Path(outer, "c++ [1]")
            folder.mkdir()
            (folder / "tools").symlink_to(ROOT / "tools")
            copy = folder / "dev"
            copy.write_text(f"{functions}\nneed() {{ :; }}\n{function}\n{call}\n", encoding="utf-8")
            done = subprocess.run(["bash", copy], capture_output=True, text=True, timeout=60, check=False)
        return re.findall(r"^SEEN (.*)$", done.stdout, re.MULTILINE)

    def test_tests(self):
        function = 'test_preset() { echo "SEEN $1 [$FERRY_TEST_ALL]"; }'
        self.assertEqual(self.said("command_test --all debug", function), ["debug [1]"])
        self.assertEqual(self.said("command_test debug", function), ["debug []"])

    def test_each_preset_must_have_its_suites(self):
        presets = {preset["name"]: preset.get("cacheVariables", {}).get("FERRY_TEST_SUITES")
                   for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        of_cmake = (ROOT / "cmake" / "FerryOptions.cmake").read_text(encoding="utf-8")
        of_all = set(re.search(r"set\(suites ([a-z_ ]+)\)", of_cmake).group(1).split())
        for preset in ("release", "debug", "tsan"):
            (seen,) = self.said(f"command_test {preset}", 'test_preset() { :; }; python3() { echo "SEEN $*"; }')
            required = set(re.findall(rf"--require {preset}:(\w+)/", seen)) - {"processes"}
            chosen = set((presets[preset] or "").split(";")) - {""} or of_all - {"gpu"}
            self.assertEqual(required, chosen if shutil.which("oshrun") else chosen - {"shmem", "faults"}, preset)

    def test_checks(self):
        function = 'check_words() { echo "SEEN [$looks_alone]"; }'
        self.assertEqual(self.said("command_check --all words", function), ["[1]"])
        self.assertEqual(self.said("command_check words", function), ["[]"])

    def test_sources_are_those_of_the_project(self):
        call = ("mkdir -p include src tool tests benchmarks examples python venv/lib build/x; touch src/a.cpp src/a.md "
                "python/b.cuh venv/lib/c.h build/x/d.cpp; sources | xargs -0 printf 'SEEN %s\\n' | sort")
        self.assertEqual(self.said(call, ""), ["python/b.cuh", "src/a.cpp"])
        tracked = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True, text=True,
                                 check=False).stdout.split()
        folders = re.search(r"^  find ([a-z ]+) -type f", (ROOT / "dev").read_text(), re.MULTILINE).group(1).split()
        self.assertLessEqual({path.split("/")[0] for path in tracked}, set(folders))

    def test_a_check_of_no_file_fails(self):
        self.assertEqual(self.said('check_format && echo "SEEN passed" || echo "SEEN failed"', ""), ["failed"])

    def test_files_of_tidy(self):
        """Those of this folder, whatever its name, and of the build of the Python module that the step python makes."""
        call = ("looks_alone=; mkdir -p build/cp-check build/cp312-linux; for folder in build/cp*; do echo [] "
                '>"$folder/compile_commands.json"; done; check_tidy; echo "SEEN $PWD"')
        *seen, here = self.said(call, "need_clang_tidy() { :; }; has_nvcc() { false; }; cmake() { :; }; "
                                      "python3() { printf 'SEEN %s\\n' \"$@\"; }")
        self.assertEqual(seen[5::2], ["build/tidy", "build/cp-check"])
        self.assertRegex(f"{here}/tests/a.cpp", seen[2])
        self.assertRegex(f"{here}/src/a.cpp", seen[6])
        self.assertRegex(f"{here}/python/src/a.cpp", seen[8])

    def test_a_step_that_is_skipped_says_why(self):
        for step in ("cuda", "nvshmem"):
            said = self.said(f'said=$(check_{step}) || echo "SEEN $? $said"', "has_nvcc() { return 1; }")
            self.assertEqual(said, ["77 == skipped: nvcc was found neither on the PATH nor in /usr/local/cuda/bin"])

    def test_checks_but_some(self):
        steps = ("format dependencies words sizes invariants docs headers product python cuda nvshmem tidy").split()
        function = "\n".join(f'check_{step}() {{ echo "SEEN {step}"; }}' for step in steps)
        self.assertEqual(self.said("command_check", function), steps)
        self.assertEqual(self.said("command_check --but cuda,tidy", function),
                         [step for step in steps if step not in ("cuda", "tidy")])
        self.assertEqual(self.said("command_check --but cuda,tidi", function), [])
        self.assertEqual(self.said("command_check --but", function), [])


def of_function(name, *parts, arguments=(), seconds=0):
    """The lines that a function of ./dev prints where it reads these parts of a text, so many seconds apart."""
    function = re.search(rf"^{name}\(\) {{$.*?^}}$", (ROOT / "dev").read_text(), re.MULTILINE | re.DOTALL).group()
    script = "set -euo pipefail\nsay() { printf '== %s\\n' \"$*\"; }\n" + function + f'\n{name} "$@"'
    with subprocess.Popen(["bash", "-c", script, "bash", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        for number, part in enumerate(parts):
            time.sleep(seconds if number > 0 else 0)
            process.stdin.write(part)
            process.stdin.flush()
        said, _ = process.communicate(timeout=60)
    if process.returncode != 0:
        raise AssertionError(f"{name} ended with {process.returncode}: {said}")
    return said.splitlines()


class CallerTests(unittest.TestCase):
    def test_the_tool_runs_where_the_caller_stands(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "build", "release", "ferry")
            tool.parent.mkdir(parents=True)
            tool.write_text("#!/bin/sh\necho $PWD: $*\n")
            tool.chmod(0o755)
            function = re.search(r"^run_ferry\(\) {$.*?^}$", (ROOT / "dev").read_text(), re.MULTILINE | re.DOTALL).group()
            script = f"need() {{ :; }}; build_preset() {{ :; }}; caller_folder=/usr\n{function}\nrun_ferry demo --svg x.svg"
            done = subprocess.run(["bash", "-euc", script], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
            self.assertEqual(done.stdout, "/usr: demo --svg x.svg\n")


class ProgressTests(unittest.TestCase):
    """What a build says where it has no terminal, from what ninja says."""

    def some_progress(self, text):
        return of_function("some_progress", text)

    def test_a_line_for_each_tenth(self):
        said = self.some_progress("".join(f"[{step}/200] Building CXX object a{step}.o\n" for step in range(201)))
        self.assertEqual(said, [f"== {20 * tenth} of 200 built ({10 * tenth} %)" for tenth in range(1, 11)])

    def test_all_that_is_no_progress_stays(self):
        others = ["FAILED: a.o", "a.cpp:3:1: error: expected '}'", "ninja: build stopped: subcommand failed."]
        said = self.some_progress("\n".join(["ninja: Entering directory `build'", "[1/2] Building a.o", *others, ""]))
        self.assertEqual(said, ["== 1 of 2 built (50 %)", *others])
        self.assertEqual(self.some_progress("ninja: no work to do.\n"), [])


class TestsProgressTests(unittest.TestCase):
    """What the tests say, from what ctest says."""

    SAID = """Test project /ferry/build/release
      Start   1: unit/Passed.One
  1/4 Test   #1: unit/Passed.One ..............   Passed    0.01 sec
      Start  12: unit/Not.There
  2/4 Test  #12: unit/Not.There ...............***Skipped   0.02 sec
  3/4 Test   #3: cli/test_some.Case ...........***Failed    0.36 sec
1/4 Test #9: is what the failed test printed
  4/4 Test   #4: protocol/Of<(anonymous namespace)::A> .   Passed   36.00 sec

50% tests passed, 1 tests failed out of 4
"""
    END = "== 2 of 4 tests passed, 1 skipped, 1 failed"

    def progress(self, *parts, every=1000, seconds=0):
        return of_function("tests_progress", *parts, arguments=[str(every)], seconds=seconds)

    def test_failures_and_the_end(self):
        self.assertEqual(self.progress(self.SAID), ["== FAILED cli/test_some.Case", self.END])

    def test_how_far_it_is_while_nothing_ends(self):
        """Also where a line comes in two pieces."""
        middle = self.SAID.index("st   #4")
        said = self.progress(self.SAID[:middle], self.SAID[middle:], every=2, seconds=3.5)
        self.assertEqual([*said[:2], said[-1]], [  # between them it may say it again
            "== FAILED cli/test_some.Case", "== 1 of 4 tests passed so far, 1 failed", self.END])

    def test_no_test(self):
        self.assertEqual(self.progress("No tests were found!!!\n", every=0), [
            "== 0 of 0 tests passed, 0 skipped, 0 failed"])


if __name__ == "__main__":
    unittest.main()
