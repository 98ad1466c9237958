"""The words of a command line: what is unknown, mistyped, repeated or without effect, help, and completion."""
import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import unittest

import numpy as np

from support import BINARY, FORMATS, FerryTestCase, ferry, make_layer, on_a_terminal, without_progress

COMMANDS = ["demo", "layer", "codec", "bench", "verify", "info"]


def options_of(*command):
    names = re.findall(r"^  (-\S+)", ferry(*command, "--help").stdout, re.MULTILINE)
    return {name for line in names for name in line.split(",") if name.startswith("--")}


class UnknownWordsTestCase(FerryTestCase):
    def refused(self, arguments, *words):
        with self.subTest(arguments=arguments):
            self.assert_refused(ferry(*arguments), 2, *words)

    def test_commands(self):
        self.refused(["carry"], "carry is not a command; there are demo, layer, codec, bench, verify, info")
        self.refused(["completion", "fish"], "fish is not a command; there are bash, zsh")
        self.refused(["demoo"], "demoo", "did you mean demo?")
        self.refused(["codec"], "needs a command: encode, decode")
        self.refused(["codec", "enc"], "did you mean encode?")

    def test_options(self):
        self.refused(["layer", "--rank", 3], "--rank is not an option of ferry layer", "did you mean --ranks?")
        self.refused(["--bogus"], "--bogus is not an option of ferry")
        self.refused(["bench", "--tokns=4"], "--tokns is not", "did you mean --tokens?")
        self.refused(["verify", "--filter", "a"], "--filter is not an option of ferry verify; it has", "--case")
        self.refused(["bench", "-x"], "-x is not an option of ferry bench")
        self.refused(["verify", "--top-k", 8], "--top-k is not an option of ferry verify", "ferry bench, ferry info have it")

    def test_words_without_an_option(self):
        self.refused(["info", "8"], "'8' belongs to no option of ferry info")
        self.refused(["verify", "--case"], "--case needs a value")

    def test_values_of_flags(self):
        self.refused(["info", "--json=3"], "--json takes no value: leave out =3")
        self.refused(["bench", "--quiet=1"], "--quiet takes no value: leave out =1")
        self.refused(["--version=2"], "--version takes no value")

    def test_options_that_are_given_twice(self):
        self.refused(["info", "--ranks", 4, "--ranks", 8], "--ranks is given twice, as 4 and as 8")
        self.refused(["bench", "-n", 4, "--seconds=1", "--seconds", 2], "--seconds is given twice, as 1 and as 2")
        done = ferry("bench", "--simulate", "--json", "--ranks", 16, "--ranks", 32, "--tokens", "4", "5")  # lists go on
        self.assertEqual(done.stdout.count("\n"), 4, done.stderr)

    def test_values(self):
        self.refused(["info", "--format", "FP8"], "--format FP8: must be one of bf16", "did you mean fp8_block128?")
        self.refused(["bench", "--model", "deepseek"], "--model deepseek", "did you mean deepseek-v3?")
        self.refused(["demo", "--backend", "gpu"], "--backend gpu: must be one of auto, cpu, processes, shmem, cuda, nvshmem",
                     "did you mean cuda?")

    def test_numbers_out_of_range(self):
        for value in (0, -5):
            self.refused(["bench", "--tokens", value], f"--tokens {value}: must be 1 or more")
        self.refused(["bench", "--ranks", 4096], "--ranks 4096: must be 1 to 2048")
        self.refused(["bench", "--tokens", 1 << 40], "must be 1 to 2147483647")
        self.refused(["bench", "--seconds", "long"], "--seconds long: must be a number, 0.01 to 600")
        for seed in ("x", "1.5"):
            self.refused(["demo", "--seed", seed], f"--seed {seed}: must be a whole number, 0 or more")
        self.refused(["demo", "--seed", 1 << 64], f"must be 0 to {(1 << 64) - 1}")

    def test_top_k_beyond_experts(self):
        self.refused(["bench", "--simulate", "--experts", 4, "--ranks", 2, "--top-k", 8],
                     "--top-k 8: must be 1 to 4, the number of experts")
        self.refused(["info", "--model", "deepseek-v3", "--experts", 4],
                     "the --top-k of --model deepseek-v3, 8: must be 1 to 4, the number of experts")
        self.refused(["bench", "--simulate", "--top-k", 33], "--top-k 33: must be 1 to 32")

    def test_what_is_no_number(self):
        for command, options in {("demo",): ["--ranks"], ("layer",): ["--ranks", "--nodes", "--deadline"],
                                 ("bench",): ["--nodes"], ("verify",): ["--nodes"]}.items():
            for option in options:
                self.refused([*command, option, "many"], f"{option} many: must be a whole number, ", " to ")
        for command in (["layer"], ["codec", "encode"], ["codec", "decode"]):
            for value in ("many", "0", "-1", "inf", "nan", "1e40"):
                self.refused([*command, "--input-scale", value],
                             f"--input-scale {value}: must be finite and greater than 0")


class HelpTestCase(FerryTestCase):
    def test_help_of_all_kinds(self):
        for arguments in (["help"], ["--help"], ["-h"]):
            done = ferry(*arguments)
            self.assert_done(done)
            self.assertEqual(done.stdout, ferry("--help").stdout)
        for command in COMMANDS:
            done = ferry("help", command)
            self.assert_done(done)
            self.assertEqual(done.stdout, ferry(command, "--help").stdout)
        self.assertEqual(ferry("help", "codec", "encode").stdout, ferry("codec", "encode", "--help").stdout)
        self.assert_refused(ferry("help", "carry"), 2, "carry is not a command")

    def test_version(self):
        for arguments in (["version"], ["-v"], ["--version"]):
            done = ferry(*arguments)
            self.assert_done(done)
            self.assertRegex(done.stdout, r"^ferry \d+\.\d+\.\d+\n$")
        self.assertEqual(f"ferry {json.loads(ferry('version', '--json').stdout)['version']}\n", done.stdout)

    def test_no_command(self):
        done = ferry()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        for command in COMMANDS:
            self.assertRegex(done.stderr, rf"\n  {command} ")
        self.assertIn("ferry: a command is missing", done.stderr)

    def test_lines_fit_a_terminal(self):
        for command in [[], *([command] for command in COMMANDS), ["codec", "encode"], ["codec", "decode"]]:
            for line in ferry(*command, "--help").stdout.splitlines():
                self.assertLessEqual(len(line), 120, line)

    def test_all_that_take_long_can_be_quiet(self):
        for command in ["demo"], ["layer"], ["codec", "encode"], ["codec", "decode"], ["bench"], ["verify"]:
            self.assertIn("\n  -q,--quiet ", ferry(*command, "--help").stdout, command)

    def test_all_say_the_exit_codes(self):
        for command in COMMANDS:
            self.assertEqual(ferry(command, "--help").stdout.count("\nExit code: 0 done; 2 bad use"), 1, command)

    def test_bench_has_groups_and_examples(self):
        text = ferry("bench", "--help").stdout
        groups = re.findall(r"^([A-Z]\w*)\b.*:$", text, re.MULTILINE)
        self.assertEqual(groups, ["Options", "Shape", "Measure", "Simulate", "Output", "Examples"])
        described = re.findall(r"^  -\S+(?: \S+)?(?: {2,}|\n +)(\S+)", text, re.MULTILINE)
        self.assertEqual(len(described), text.count("\n  -"))
        for word in described:
            self.assertTrue(word[0].isupper() or word == "exact:", word)
        for example in re.findall(r"^  ferry (.+)$", text, re.MULTILINE):
            self.assertLessEqual(set(re.findall(r"--[a-z-]+", example)), options_of("bench"))

    def test_names_with_two_meanings_are_told(self):
        self.assertRegex(ferry("layer", "--help").stdout, r"--tokens FILE.*not a count")
        for command in ("bench", "info"):
            self.assertRegex(" ".join(ferry(command, "--help").stdout.split()), r"--tokens\b.*not a file")

    def test_models_are_listed(self):
        for command in ("bench", "info"):
            for model in ("deepseek-v3", "mixtral-8x7b"):
                self.assertIn(model, ferry(command, "--help").stdout)


class AliasTestCase(FerryTestCase):
    def test_input_and_output_of_codec(self):
        x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 64)
        np.save(self.folder / "x.npy", x)
        name = lambda each: self.folder / f"{each}.npy"
        scales = ["--payload", name("p"), "--scales", name("s")]
        self.assert_done(ferry("codec", "encode", "--format", "mxfp8", "--input", name("x"), *scales))
        self.assert_done(ferry("codec", "decode", "--format", "mxfp8", "--output", name("y"), *scales))
        self.assertEqual(np.load(name("y")).shape, x.shape)

    def test_tokens_per_rank(self):
        done = ferry("bench", "--simulate", "--json", "--ranks", 16, "--tokens-per-rank", 7)
        self.assertIn('"tokens":7', done.stdout)


class NoEffectTestCase(FerryTestCase):
    def note(self, *arguments):
        done = ferry(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return without_progress(done.stderr)

    def test_input_scale(self):
        for format_name in FORMATS:
            done = self.layer(make_layer(), "--format", format_name, "--input-scale", 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("--input-scale 2 has no effect" in done.stderr, format_name != "nvfp4", done.stderr)

    def test_bench(self):
        few = ["--backend", "cpu", "--iterations", 1, "--tokens", 2, "--hidden", 64, "--cache", 4]
        self.assertIn("--baseline has no effect", self.note("bench", *few, "--baseline", "--operation", "encode"))
        self.assertIn("--routing", self.note("bench", *few, "--routing", "zipf", "--operation", "decode"))
        self.assertIn("--zipf-exponent has no effect", self.note("bench", *few, "--zipf-exponent", 2))
        for seconds in (1, 2):  # 2 is the default
            self.assertIn("--seconds has no effect", self.note("bench", *few, "--seconds", seconds))
        self.assertEqual(self.note("bench", *few, "--routing", "zipf", "--zipf-exponent", 2), "")

    def test_options_of_other_ranks(self):
        if any(device["kind"] == "gpu" for device in json.loads(ferry("info", "--json").stdout)["devices"]):
            self.skipTest("--backend auto takes the GPUs of this machine")
        few = ["--iterations", 1, "--tokens", 2, "--hidden", 64, "--cache", 4]
        self.assertIn("note: --max-blocks has no effect: it is for GPUs", self.note("bench", *few, "--max-blocks", 8))
        self.assert_refused(ferry("bench", *few, "--max-blocks", 8, "--backend", "cpu"), 2, "--max-blocks: is for GPUs")
        self.assertIn("note: --wait-blocks has no effect: it is for GPUs",
                      self.note("bench", *few, "--wait-blocks", 0))
        self.assert_refused(ferry("bench", *few, "--wait-blocks", 0, "--backend", "cpu"), 2,
                            "--wait-blocks: is for GPUs")
        why = "note: --share-gpus has no effect: the ranks are threads of this process"
        self.assertIn(why, self.layer(make_layer(), "--share-gpus").stderr)
        self.assertIn(why, self.note("demo", "--share-gpus", "--no-svg", "--format", "bf16"))
        self.assertIn(why, self.note("verify", "--share-gpus", "--case", "reports/memory"))

    def test_ranks_are_the_processes_where_none_are_asked_for(self):
        started = os.environ | {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
        for backend, ranks in (("shmem", 3), ("cpu", 4)):
            done = ferry("info", "--model", "kimi-k2", "--backend", backend, "--json", env=started)
            self.assertEqual(json.loads(done.stdout)["shape"]["ranks"], ranks, done.stderr)

    def test_info_without_a_shape(self):
        self.assertIn("note: --format has no effect without a shape", self.note("info", "--format", "mxfp8"))
        self.assertIn("note: --combine has no effect without a shape", self.note("info", "--combine", "exact"))
        given = self.note("info", "--shared-expert", "--tiled-scales", "--alignment", 8)
        self.assertIn("note: --alignment, --shared-expert, --tiled-scales have no effect without a shape", given)
        self.assertIn("note: --backend has no effect without a shape", self.note("info", "--backend", "cpu"))
        self.assertIn("note: --list-models lists the models", self.note("info", "--list-models", "--ranks", 4))
        self.assertEqual(self.note("info", "--model", "kimi-k2", "--combine", "exact"), "")


class CompletionTestCase(FerryTestCase):
    def words(self, *typed):
        """What bash offers for the last word."""
        script = ('source <("$FERRY" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ferry;'
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", "ferry", *typed], capture_output=True, text=True, timeout=60,
                              cwd=self.folder, env={**os.environ, "FERRY": BINARY})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_bash(self):
        self.assertLessEqual({*COMMANDS, "help", "version"}, self.words(""))
        self.assertNotIn("bench-mpi-worker", self.words(""))
        for command in (["demo"], ["layer"], ["bench"], ["verify"], ["info"], ["codec", "encode"]):
            self.assertEqual(self.words(*command, "--"), options_of(*command))
        self.assertEqual(self.words("codec", ""), {"encode", "decode", "--help"})
        self.assertEqual(self.words("layer", "--format", ""), set(FORMATS))
        self.assertEqual(self.words("bench", "--format", "bf16,mxfp4"), {"bf16,mxfp4"})
        for command in ("demo", "bench"):
            self.assertEqual(self.words(command, "--format", ""), {*FORMATS, "all"})
        self.assertEqual(self.words("bench", "--model", "a"), {"all"})
        self.assertEqual(self.words("info", "--model", "a"), set())
        self.assertEqual(self.words("layer", "--combine", ""), {"by_rank", "exact"})
        self.assertEqual(self.words("info", "--reduction", ""), {"by_rank", "exact", "either"})
        self.assertEqual(self.words("bench", "--message-copies", ""), {"2", "4"})
        self.assertEqual(self.words("info", "--model", "kimi"), {"kimi-k2", "kimi-k3"})
        self.assertEqual(self.words("help", "ver"), {"verify", "version"})
        self.assertEqual(self.words("help", "codec", ""), {"encode", "decode"})
        for value in ("", "--", "1"):  # a number is offered no name of an option in its place
            self.assertEqual(self.words("bench", "--ranks", value), set())
        self.assertEqual(self.words("bench", "--ranks", "=", "1"), set())
        self.assertIn("--tokens", self.words("bench", "--ranks", "16", ""))
        self.assertIn("routings/one_token", self.words("verify", "--case", "rout"))
        (self.folder / "tokens.npy").write_text("")
        self.assertEqual(self.words("layer", "--tokens", "to"), {"tokens.npy"})

    def test_bash_with_an_equals_sign(self):
        """Bash takes --format=nv for three words, or for one where COMP_WORDBREAKS has no =."""
        self.assertEqual(self.words("layer", "--format", "=", "nv"), {"nvfp4"})
        self.assertEqual(self.words("layer", "--format", "="), set(FORMATS))
        self.assertEqual(self.words("bench", "--backend", "=", "c"), {"cpu", "cuda"})
        self.assertEqual(self.words("layer", "--format=nv"), {"--format=nvfp4"})
        self.assertEqual(self.words("bench", "--format=bf16,nv"), {"--format=bf16,nvfp4"})
        self.assertIn("routings/one_token", self.words("verify", "--case", "=", "rout"))
        (self.folder / "tokens.npy").write_text("")
        self.assertEqual(self.words("layer", "--tokens", "=", "to"), {"tokens.npy"})
        self.assertEqual(self.words("layer", "--tokens=to"), {"--tokens=tokens.npy"})

    def test_zsh(self):
        done = ferry("completion", "zsh")
        self.assert_done(done)
        for command in (["demo"], ["layer"], ["bench"], ["verify"], ["info"], ["codec", "encode"]):
            body = re.search(rf"^_ferry_{'_'.join(command)}\(\) {{(.*?)^}}", done.stdout, re.MULTILINE | re.DOTALL)
            self.assertEqual(set(re.findall(r"'\*?(--[a-z0-9-]+)=?\[", body.group(1))), options_of(*command))
        self.assertIn(f"value {' '.join(FORMATS)} all'", done.stdout)
        self.assertIn("'--format=[", done.stdout)  # with a =, zsh completes `--format=` too
        if shutil.which("zsh"):
            checked = subprocess.run(["zsh", "-n"], input=done.stdout, capture_output=True, text=True, timeout=60)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))


    def lines_in_zsh(self, *typed):
        """The command lines that a zsh without any settings has when a tab is typed behind each."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "PATH": f"{os.path.dirname(BINARY)}:{os.environ['PATH']}",
                                                    "TERM": "dumb", "HOME": str(self.folder), "ZDOTDIR": str(self.folder)})
        shown = "".join(f"{line}\t\x01print -r -- 'line:' \n" for line in typed)  # to the line's begin, and run it
        os.write(terminal, f"source <(ferry completion zsh)\n{shown}exit\n".encode())
        text = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(terminal, 65536):
                text += part
        os.close(terminal)
        os.waitpid(process, 0)
        self.assertNotIn(b"not found", text)
        return [line.strip() for line in re.findall(r"^line: (.*)$", text.decode().replace("\r", "\n"), re.MULTILINE)]

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_in_zsh(self):
        (self.folder / "tokens.npy").write_text("")
        lines = {"ferry be": "ferry bench", "ferry codec enc": "ferry codec encode", "ferry verify --qui": None,
                 "ferry bench --format bf16,nv": "ferry bench --format bf16,nvfp4",
                 "ferry layer --format=nv": "ferry layer --format=nvfp4",
                 "ferry layer --tokens tok": "ferry layer --tokens tokens.npy", "ferry help ver": None,
                 "ferry info --model mixtral": "ferry info --model mixtral-8x7b"}
        self.assertEqual(self.lines_in_zsh(*lines), [want or line for line, want in lines.items()])


class WidthTestCase(FerryTestCase):
    def longest(self, *arguments, **environment):
        text = re.sub("\033\\[[0-9;]*[mK]", "", on_a_terminal(*arguments, **environment))
        return max(len(line) for line in text.splitlines())

    def test_lines_fit_the_terminal(self):
        for command in (["info"], ["layer", "--help"], ["verify", "--backend", "cpu", "--case", "reports/memory"]):
            with self.subTest(command=command):
                self.assertLessEqual(self.longest(*command, COLUMNS="80"), 80)
                self.assertLessEqual(self.longest(*command, columns=80), 80)
                for lines in (self.longest(*command), self.longest(*command, columns=500)):
                    self.assertTrue(80 < lines <= 120, lines)

    def test_sentences_are_broken(self):
        self.assertLessEqual(self.longest("info", "--model", "kimi-k2", COLUMNS="80"), 80)
        text = on_a_terminal("demo", "--backend", "cpu", "--no-svg", "--format", "bf16", COLUMNS="60")
        self.assertLessEqual(max(len(line) for line in text[:text.index("\r\n\r\n")].splitlines()), 60, text)


class ColourTestCase(FerryTestCase):
    CASE = ("verify", "--backend", "cpu", "--case", "reports/memory")

    def test_only_on_a_terminal_that_takes_it(self):
        self.assertRegex(on_a_terminal(*self.CASE), "\033\\[32mok\033\\[0m")
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"OMPI_COMM_WORLD_RANK": "0"}):
            self.assertNotIn("\033", on_a_terminal(*self.CASE, **environment))
        self.assertNotIn("\033", ferry(*self.CASE).stdout)


if __name__ == "__main__":
    unittest.main()
