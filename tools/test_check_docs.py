#!/usr/bin/env python3
"""Tests of check_docs: a good tree passes, and each thing that a page can get wrong is found."""

import pathlib
import tempfile
import unittest

import check_docs
import run_readme

HEADER = """namespace ferry {
struct Shape { int ranks = 0; };  // bf16
class Exchange { public: void dispatch(int in); };
int first_expert(const Shape& shape);
}
"""
DEV_HELP = """usage: ./dev <command>
  demo [option...]    build and run `ferry demo`
  gpu-test            build and run the tests
  check [step...]     format, words,
                      tidy; or only the steps named; with --all
  test [preset...]    build and run the tests
  build [preset]      build one preset (release) in build/<preset>: release, cuda-compile
"""
HELP = {"demo": "--out-dir TEXT  where\n--json", "bench": "--format TEXT", "codec encode": "--in TEXT"}


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.write("include/ferry/shape.h", HEADER)
        self.write("include/ferry/detail/protocol/dispatch.h", "void send_tokens();")
        self.write("docs/a.md", "# One title: `x` and *y*\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def findings(self, path, text):
        self.write(path, text)
        return check_docs.check(self.root, None)[1]

    def commands(self, text):
        return check_docs.check_commands(check_docs.Page("README.md", text), HELP.get, check_docs.words_of_dev(DEV_HELP))


class Comments(Tree):
    def test_files_that_comments_name_are_there(self):
        self.write("include/ferry/rows/rows.h", "")
        self.write("src/cuda/launch.cu.in", "")
        for text in ("rows.h", "ferry/rows/rows.h", "(rows/rows.h)", "launch.cu.in", "launch.cu", "a.b.rows", "dlpack.h"):
            self.assertEqual(self.findings("src/cuda/a.cpp", f"// See {text}.\n"), [], text)
        for text in ("row.h", "ferry/rows.h", "(other/rows.h)"):
            found = self.findings("src/cuda/a.cpp", f"int a;  // see {text}\n")
            self.assertEqual(len(found), 1, text)
            self.assertTrue(found[0].startswith("src/cuda/a.cpp:1: no file "), found)


class Links(Tree):
    def test_good_links_pass(self):
        self.assertEqual(self.findings("README.md", "[a](docs/a.md) [b](docs/a.md#one-title-x-and-y) [c](https://x.org/y)"
                                                    " ![d](docs/a.md) [e `]` f](docs)\n"), [])
        self.assertEqual(self.findings("docs/b.md", "[up](../README.md) [same](#here)\n# Here\n"), [])

    def test_broken_links_are_found(self):
        for text in ("[a](docs/none.md)", "![a](docs/none.svg)", "[a](/docs/a.md)", "[a](../a.md)", "[a](#nowhere)",
                     "[a](docs/a.md#two)", '<img src="docs/none.svg">'):
            self.assertEqual(len(self.findings("README.md", text + "\n")), 1, text)

    def test_what_others_wrote_is_left_out(self):
        for path in ("build/release/a.md", ".venv/a.md", "venv/a.md", "docs/.cache/a.md"):
            self.assertEqual(self.findings(path, "[a](none.md)\n"), [])

    def test_what_is_code_is_no_link(self):
        self.assertEqual(self.findings("README.md", "```\n[a](none.md)\n```\n`[a](none.md)`\n"), [])


class Files(Tree):
    def test_a_file_that_a_span_names_is_there(self):
        self.assertEqual(self.findings("README.md", "`docs/a.md` `include/ferry/` `build/release/ferry` `src/*.h`\n"), [])
        self.assertEqual(len(self.findings("README.md", "`docs/none.md`\n")), 1)


class Commands(Tree):
    def test_good_commands_pass(self):
        self.assertEqual(self.commands("`ferry demo --json`, `./dev test`, `./dev build cuda-compile`,"
                                       " `./dev check --but words,tidy`, `./dev gpu-test`\n```sh\nx  # ./dev check finds it\n\nbuild/release/ferry bench \\\n"
                                       "  --format bf16 && ./dev demo --out-dir x\nferry codec encode --in x.npy\n```\n"), [])

    def test_unknown_ones_are_found(self):
        for text in ("`ferry sail`", "`ferry codec encode --out x`", "`ferry codec sail`", "`ferry demo --no-such`", "`./dev sail`", "`./dev gpu-sail`",
                     "`./dev check sail`", "`./dev check --all words sail`", "`./dev check --but words,sail`",
                     "`./dev test sail`", "```\n./dev build cuda # all\n```", "```\nferry demo \\\n  --format x\n```",
                     "```\nx; ../ferry sail\n```"):
            self.assertEqual(len(self.commands(text + "\n")), 1, text)

    def test_an_option_belongs_to_its_own_command(self):
        self.assertEqual(self.commands("`ferry demo --json | other --thing`, `ferry demo; x --thing`\n"), [])


class Names(Tree):
    def test_names_of_the_library_pass(self):
        self.assertEqual(self.findings(check_docs.NAMES_PAGES[0],
                                       "`Exchange::dispatch` of a `ferry::Shape`, `bf16`, `[n, K]`, `R * T`\n"
                                       "| `ep_init` | `first_expert` |\n"
                                       "| `other` | `send_tokens` in `include/ferry/detail/protocol/dispatch.h` |\n"), [])

    def test_names_that_are_not_there_are_found(self):
        for text in ("`Exchange::sail`", "`Ship::dispatch`", "`Shape::dispatch`", "| `Exchange` | `ep_init` |",
                     "`send_tokens`", "`shape_`", "| `x` | `sail` in `include/ferry/detail/protocol/dispatch.h` |"):
            self.assertEqual(len(self.findings(check_docs.NAMES_PAGES[0], text + "\n")), 1, text)


class Lengths(Tree):
    def test_pages_and_paragraphs_of_that_length_pass(self):
        paragraph = "word " * check_docs.MOST_WORDS_OF_PARAGRAPH
        self.assertEqual(self.findings("docs/b.md", f"{paragraph}\n\n{paragraph}\n- {'a ' * 100}\n- {'a ' * 100}\n"), [])
        self.assertEqual(self.findings("docs/b.md", "| word |\n" * (check_docs.MOST_WORDS // 3)), [])

    def test_longer_ones_are_found(self):
        half = "word " * (check_docs.MOST_WORDS_OF_PARAGRAPH // 2 + 1)
        for text in (2 * half, f"{half}\n{half}", "- " + 2 * half, "short\n\n" * (check_docs.MOST_WORDS + 1),
                     "```\n" + "word\n" * (check_docs.MOST_WORDS + 1) + "```\n"):
            self.assertEqual(len(self.findings("docs/b.md", text + "\n")), 1, text[:40])

    def test_the_lab_and_references_may_be_long(self):
        for path in ("docs/lab/b.md", *check_docs.REFERENCES):
            self.assertEqual(self.findings(path, "word " * (check_docs.MOST_WORDS + 1)), [])


class Readme(Tree):
    README = "# A\n```sh\nno\n```\n## The `x` command\ntext\n```sh\n{}\n```\n## B\n```sh\nno\n```\n"

    def run_commands(self, commands):
        found = run_readme.commands_of(self.README.format(commands), "The `x` command")
        return run_readme.run(found, self.root, self.root / "tool", self.root / "work")

    def test_every_command_must_work(self):
        self.write("tool", "#!/bin/sh\ntest $1 = a")
        (self.root / "tool").chmod(0o755)
        self.write("examples/x", "")
        self.assertEqual(self.run_commands("export PATH=$PWD/build/release:$PATH\nferry a && ls examples/x"), 0)
        self.assertNotEqual(self.run_commands("build/release/ferry b\ntrue"), 0)

    def test_a_missing_section_has_no_commands(self):
        self.assertIsNone(run_readme.commands_of(self.README, "C"))


if __name__ == "__main__":
    unittest.main()
