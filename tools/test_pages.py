#!/usr/bin/env python3
"""What readers of the pages once missed or misread, and where it stands now. Each test fails for the pages of 0.1.

FERRY_PAGES names another tree to look at, to see them fail: `git archive 14cf5a1 | tar x -C FOLDER`.
"""

import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ.get("FERRY_PAGES", pathlib.Path(__file__).resolve().parent.parent))
COMMIT = re.compile(r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,8}\b")


def page(name):
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def section(text, title):
    """What stands below the heading, up to the next one of its level."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(2) if found else ""


class Case(unittest.TestCase):
    def assert_says(self, text, *words):
        missing = [each for each in words if each not in text]
        self.assertFalse(missing, f"not in the page of {text[:40]!r}")

    def assert_matches(self, text, pattern):
        self.assertTrue(re.search(pattern, text), f"no {pattern} in the page of {text[:40]!r}")


def table_heads(text):
    return [line for line, below in zip(text.splitlines(), text.splitlines()[1:]) if re.fullmatch(r"[|-]{4,}", below)]


class Readme(Case):
    readme = page("README.md")
    above = readme.split("\n## ")[0]  # the first screen

    def test_has_times_of_peers_beside_its_own(self):
        heads = table_heads(section(self.readme, "Speed"))
        self.assertTrue(heads, "no table")
        self.assert_says(heads[0], "Ferry", "DeepEP V2", "DeepEP V1", "NCCL")

    def test_first_screen_has_status_a_figure_and_a_picture(self):
        self.assert_matches(self.above, r"never over a network")
        self.assert_matches(self.above, r"\d us\b")
        self.assert_matches(self.above, r"!\[[^]]{40,}\]\(docs/images/exchange\.svg\)")
        self.assertLess(self.above.count("\n"), 12)

    def test_a_figure_of_the_first_screen_names_its_commit(self):
        self.assert_matches(self.above, COMMIT)

    def test_says_how_far_off_forwarding_would_be(self):
        self.assert_matches(section(self.readme, "What is not there"), r"[Ff]orwarding.*\d ms in place of")

    def test_words_that_took_two_readings_are_gone(self):
        for words in ("the same protocol text", "lays the arrivals out", "of their time", "as it stands", "in 30 lines",
                      "FP8 there", "use one of these"):
            self.assertFalse(words in self.readme, words)

    def test_words_are_explained_by_a_page_that_the_first_screen_names(self):
        self.assert_says(self.above, "docs/glossary.md")
        glossary = page("docs/glossary.md")
        for word in ("round", "pair", "row", "message", "slot", "`by_rank`"):
            self.assert_matches(glossary, rf"(?m)^\| {word}(,| \|)")

    def test_gpu_example_says_what_is_the_readers_own(self):
        self.assert_says(section(self.readme, "On GPUs"), "// yours: tensors on this GPU", "examples/cuda/readme.cu")
        self.assert_says(page("docs/gpu/use.md"), "CUDA::cudart")

    def test_python_stands_beside_the_first_commands(self):
        python = section(self.readme, "Two commands").split("```sh\n")[2].partition("```")[0]
        self.assertEqual(len(python.splitlines()), 2, python)
        self.assert_says(python, "pip install .", "python examples/moe_layer.py")


class Pages(Case):
    def test_gpus_have_a_table_of_what_was_tried_by_their_number(self):
        self.assert_says(section(page("docs/gpu/README.md"), "Ferry on GPUs"), "| state |", "on 2 H200s",
                         "more than 4 GPUs", "never over a network", "Blackwell")

    def test_first_page_on_gpus_is_for_users(self):
        text = page("docs/gpu/README.md")
        self.assert_says(text, "| page | for whom |")
        self.assertLess(text.count("\n"), 40)
        self.assertLess(len(COMMIT.findall(text)), 3, "commits belong in docs/lab/verified.md")

    def test_ledger_of_runs_is_a_lab_note(self):
        self.assertGreater(len(COMMIT.findall(page("docs/lab/verified.md"))), 20)

    def test_how_kernels_work_is_told_by_sections_and_pictures(self):
        text = page("docs/gpu/how-it-works.md")
        self.assertGreater(text.count("\n## "), 3)
        self.assertGreater(text.count("](../images/"), 1)
        for paragraph in text.split("\n\n"):
            self.assertLess(len(paragraph.split()), 180, paragraph[:80])

    def test_memory_of_many_ranks_and_what_to_do(self):
        self.assert_says(section(page("docs/memory.md"), "Memory of many ranks"), "64 ranks", "in all",
                         "rounds of fewer tokens", "may overflow", "ferry info --model")

    def test_rows_say_which_kernels_of_others_read_them(self):
        self.assert_says(page("docs/rows.md"), "DeepGEMM", "CUTLASS", "FlashInfer", "Marlin", "m_indices")
        self.assert_says(page("docs/outputs.md"), "`counts`")

    def test_those_who_come_from_deepep_have_a_page(self):
        self.assert_says(page("docs/coming-from-deepep.md"), "low_latency_dispatch", "hook", "handle", "num_sms",
                         "async_finish")

    def test_all_components_stand_where_ferry_is_installed(self):
        self.assert_says(section(page("docs/start.md"), "Install and link"), "`ferry::ferry`", "`ferry::shmem`",
                         "`ferry::cuda`", "`ferry::nvshmem`")


class Pictures(Case):
    def test_the_picture_of_an_exchange_shows_ranks_messages_and_sums(self):
        self.assert_says(page("docs/images/exchange.svg"), "rank 0", "rank 2", "messages", "sums")

    def test_the_picture_of_the_demo_shows_what_ferry_saves(self):
        self.assert_says(page("docs/images/ferry-demo.svg"), "How choices become messages", "a token goes once to a rank")


if __name__ == "__main__":
    unittest.main()
