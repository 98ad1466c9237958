#!/usr/bin/env python3
"""Tests of the checks in this folder: each passes a good tree and fails each way in which a tree can be bad."""

import contextlib
import io
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

import check_dependencies
import check_invariants
import check_readme
import check_sizes
import check_words
import sources


def words(path, text):
    return check_words.check_file(path, text)


class Sources(unittest.TestCase):
    def test_code_keeps_lines_and_drops_comments_and_literals(self):
        text = 'int a; // atomic\n/* asm\n asm */ f("asm \\" {", \'{\', R"x(asm " {)x", 1\'000);\n'
        code = sources.code_of(text)
        self.assertEqual(code.count("\n"), text.count("\n"))
        self.assertNotIn("asm", code)
        self.assertNotIn("atomic", code)
        self.assertNotIn("{", code)
        self.assertIn("1'000", code)

    def test_comments_come_with_their_lines(self):
        self.assertEqual(sources.comments_of('f("// no");\n// I7\n'), [(2, "// I7")])

    def test_a_check_that_met_nothing_fails(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(sources.finish("x", 0, []), 1)
            self.assertEqual(sources.finish("x", 1, ["bad"]), 1)
            self.assertEqual(sources.finish("x", 1, []), 0)


class Words(unittest.TestCase):
    def test_atomics_belong_to_order(self):
        for text in ("std::atomic<int> a;", "std::atomic_ref<int> a(b);", "atomicAdd(p, 1);", "volatile int a;",
                     "x.load(std::memory_order_acquire);", "__atomic_load_n(p, 0);", "__threadfence();",
                     "#include <atomic>\n"):
            self.assertTrue(words("src/cpu/a.cpp", text), text)
            self.assertTrue(words("include/ferry/a.h", text), text)
            self.assertEqual(words("include/ferry/detail/base/order.h", text), [], text)
            self.assertEqual(words("tests/support/a.h", text), [], text)
        self.assertEqual(words("src/cpu/a.cpp", "// atomic\nint atomicity;"), [])

    def test_spinning_belongs_to_wait(self):
        for text in ("std::this_thread::yield();", "sched_yield(); std::this_thread::sleep_for(x);", "while (!done());",
                     "while (load_acquire(word) < target) {}", "while (busy(a(b(c)))) ;",
                     "for (;;) { if (load_relaxed(w)) break; }"):
            self.assertTrue(words("src/protocol/a.h", text), text)
            self.assertEqual(words("include/ferry/detail/base/wait.h", text), [], text)
        for text in ("while (a) b();", "do { a(); } while (b());", "while (!text.empty() && f(g(x))) text.pop_back();"):
            self.assertEqual(words("src/protocol/a.h", text), [], text)

    def test_asm_belongs_to_ptx(self):
        text = 'asm volatile("x");'
        self.assertTrue(words("src/cuda/kernel.cuh", text))
        self.assertTrue(words("tests/gpu/a.cu", text))
        self.assertFalse([finding for finding in words("include/ferry/detail/cuda/team/ptx_copy.cuh", 'asm("x");')])

    def test_the_parser_belongs_to_the_command_line(self):
        text = "void add_options(CLI::App& app);"
        self.assertTrue(words("tool/commands/options/commands.h", text))
        self.assertEqual(words("tool/command_line/command_line.cpp", text), [])

    def test_the_library_neither_ends_nor_prints(self):
        for text in ("std::abort();", "exit(1);", 'std::printf("x");', "std::cout << 1;", 'fmt::print("x");'):
            self.assertTrue(words("src/cpu/a.cpp", text), text)
            self.assertEqual(words("tool/a.cpp", text), [], text)
        self.assertEqual(words("src/cpu/a.cpp", "world.abort(1); snprintf(a, b);"), [])

    def test_aliases_are_made_by_using(self):
        for path in ("src/cpu/a.cpp", "tests/unit/a.cpp", "python/src/a.h"):
            self.assertTrue(words(path, "typedef int Count;"), path)
            self.assertEqual(words(path, "using Count = int;  // no typedef"), [], path)

    def test_the_glossarys_words_are_used(self):
        for text in ("RowRing ring;", "int kept = load_kept(row);", "// the rankers have written it", "bool is_near(int r);",
                     "/* one\n looking ahead */", "if (roles.holds_next) f();", "struct TeamGroup;"):
            for path in ("include/ferry/detail/cuda/team/a.cuh", "src/cuda/a.cpp", "tests/unit/a.cpp", "tool/a.h"):
                self.assertTrue(words(path, text), text)
        self.assertEqual(words("src/a.cpp", "/* one\n rankers */"),
                         ["src/a.cpp:2: 'rankers': docs/glossary.md says route, routing block, position in expert"])
        for text in ('f("rankers");', "RowPipeline pipeline; // this rank routes", "int rank, ranks; bool nearest;"):
            self.assertEqual(words("src/cuda/a.cpp", text), [], text)

    def test_earlier_private_words_are_refused(self):
        for text in ("constexpr int kNap = 64;", "// a block naps", "struct Seat;", "int id_base;", "f(protocol_shape(s));",
                     "Divider by_more_;", "int of_smaller_ranks;", "bool kIsWide;", "bool rings;", "struct Work {",
                     "const Resident& resident;", "bool early;", "int early_turns;", "bool is_early;", "int kSwigluEarlyColumns;"):
            self.assertTrue(words("src/cuda/a.h", text), text)
        for text in ("int kRankers;", "struct RankerShare;", "int num_rings;", "SeatMap map;", "bool rehearsesNow;", "f(max_naps);"):
            self.assertTrue(words("src/cuda/a.h", text), text)
        self.assertTrue(words("include/ferry/detail/cuda/team/a.cuh", "int pieces;"))
        for text in ("// A rank leaves early.", "template <class Work> void f(const Work& work);", "// strings, snapshots"):
            self.assertEqual(words("src/cuda/a.h", text), [], text)

    def test_pages_use_the_glossarys_words(self):
        self.assertEqual(check_words.check_page("docs/lab/log.md", "one\nrow starts rehearsed\n"),
                         ["docs/lab/log.md:2: 'rehearsed': docs/glossary.md says warm-up"])
        self.assertEqual(check_words.check_page("docs/a.md", "A rank ends early."), [])
        self.assertEqual(check_words.check_page(check_words.GLOSSARY, "DeepEP: slot of a ring"), [])

    def test_each_refused_word_has_one_that_the_glossary_explains(self):
        glossary = (pathlib.Path(__file__).parent.parent / "docs/glossary.md").read_text(encoding="utf-8").lower()
        terms = {term for line in glossary.splitlines() if line.startswith("| ")
                 for term in line.split("|")[1].strip().split(", ")}
        for say in [say for _, say in check_words.REFUSED + check_words.REFUSED_NAMES] + [*check_words.REFUSED_PARTS.values()]:
            self.assertLessEqual(set(say.split(", ")), terms)


class Dependencies(unittest.TestCase):
    def findings(self, path, text, *others):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in (*others, "include/ferry/a.h", "include/ferry/detail/base/a.h", "include/ferry/detail/formats/a.h",
                         "include/ferry/detail/protocol/a.h", "include/ferry/detail/cuda/a.cuh", "src/exchange/a.h",
                         "src/cpu/a.h", "src/cuda/a.h", "tool/a.h", "tests/support/a.h", path):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            return check_dependencies.check_file(root, path, text)

    def test_includes_point_one_way(self):
        detail = "ferry/detail/"
        for path, included in (("include/ferry/b.h", detail + "base/a.h"), ("include/ferry/detail/base/b.h", detail + "formats/a.h"),
                               ("include/ferry/detail/formats/b.h", detail + "protocol/a.h"),
                               ("include/ferry/detail/protocol/b.h", detail + "cuda/a.cuh"),
                               ("include/ferry/detail/cuda/b.cuh", "cuda/a.h"), ("src/exchange/b.h", "cpu/a.h"),
                               ("src/cpu/b.h", "cuda/a.h"), ("src/cuda/b.h", "cpu/a.h"), ("src/cpu/b.cpp", "tool/a.h"),
                               ("src/exchange/b.h", "../cpu/a.h"), ("src/cpu/b.cpp", "support/a.h"), ("tool/b.cpp", "support/a.h")):
            self.assertTrue(self.findings(path, f'#include "{included}"\n'), (path, included))
        for path, included in (("include/ferry/detail/base/b.h", "ferry/a.h"),
                               ("include/ferry/detail/protocol/b.h", detail + "formats/a.h"),
                               ("include/ferry/cuda/b.cuh", detail + "cuda/a.cuh"), ("src/cpu/b.h", detail + "protocol/a.h"),
                               ("src/cpu/b.h", "exchange/a.h"), ("tool/b.cpp", "cpu/a.h"), ("tests/unit/b.cpp", "cuda/a.h")):
            self.assertEqual(self.findings(path, f'#include "{included}"\n'), [], (path, included))

    def test_rooms_of_a_layer_point_one_way(self):
        detail = "include/ferry/detail/cuda/"
        for path, above in ((detail + "state/b.h", "team/a.cuh"), (detail + "team/b.cuh", "fabric/a.cuh"),
                            (detail + "fabric/b.cuh", "steps/a.cuh"), (detail + "steps/b.cuh", "kernels/a.cuh")):
            self.assertTrue(self.findings(path, f'#include "ferry/detail/cuda/{above}"\n', detail + above), (path, above))
            swapped = path.replace("include/", "")
            self.assertEqual(self.findings(detail + above, f'#include "{swapped}"\n', path), [], (path, above))
        for path, included in (("src/cuda/exchange/b.h", "cuda/world/a.h"), ("src/cpu/steps/b.h", "cpu/a.h"),
                               ("src/cuda/exchange/plan/b.h", "cuda/exchange/order/a.h")):
            self.assertTrue(self.findings(path, f'#include "{included}"\n', "src/" + included), (path, included))
        self.assertEqual(self.findings("src/cpu/b.h", '#include "cpu/steps/a.h"\n', "src/cpu/steps/a.h"), [])

    def test_a_room_that_exists_has_a_floor(self):
        root = pathlib.Path(__file__).parent.parent
        for layer, rooms in check_dependencies.ROOMS.items():
            self.assertEqual([room for room in rooms if not (root / layer / room).is_dir()], [], layer)

    def test_public_headers_need_only_std(self):
        for included in ("fmt/format.h", "cuda_runtime.h", "mpi.h", "shmem.h", "cuda/atomic"):
            self.assertTrue(self.findings("include/ferry/b.h", f"#include <{included}>\n"), included)
        self.assertEqual(self.findings("include/ferry/b.h", "#include <vector>\n"), [])

    def test_text_of_every_backend_needs_no_library(self):
        self.assertTrue(self.findings("include/ferry/detail/base/b.h", "#include <fmt/format.h>\n"))
        self.assertTrue(self.findings("include/ferry/detail/protocol/b.h", "#include <cuda_runtime.h>\n"))
        for path in ("src/exchange/b.cpp", "src/exchange/b.h"):
            self.assertEqual(self.findings(path, "#include <fmt/format.h>\n"), [])

    def test_an_unknown_file_is_an_error(self):
        self.assertTrue(self.findings("src/cpu/b.cpp", '#include "cpu/none.h"\n'))


class Sizes(unittest.TestCase):
    def body(self, lines):
        return "{\n" + "  a();\n" * (lines - 2) + "}\n"

    def test_functions_have_a_limit(self):
        heads = ("void f() ", "namespace n {\nclass C {\n int g() const ", "TEST(A, B) ", "template <class T>\nauto f(T a) -> int ",
                 "C::C(int a) : a_(a), b_{1} ", "struct S { int a = 1; std::vector<int> b{1}; void g() ")
        for head in heads:
            self.assertEqual(check_sizes.check_cxx("a.h", head + self.body(60)), [], head)
            self.assertEqual(len(check_sizes.check_cxx("a.h", head + self.body(61))), 1, head)

    def test_kernels_have_a_lower_one(self):
        head = "template <class F>\n__global__ void __launch_bounds__(128) k(P p) "
        self.assertEqual(check_sizes.check_cxx("a.cu", head + self.body(40)), [])
        self.assertEqual(len(check_sizes.check_cxx("a.cu", head + self.body(41))), 1)

    def test_what_is_no_function_has_none(self):
        for head in ("struct S ", "namespace n ", "enum class E ", "constexpr int kTable[] = ", "class A : public B "):
            self.assertEqual(check_sizes.check_cxx("a.h", head + "{\n" + "  a,\n" * 100 + "};\n"), [], head)

    def test_braces_in_literals_do_not_count(self):
        text = 'void f() {\n  g("{", \'{\');\n}\nvoid h() ' + self.body(61)
        self.assertEqual([finding.split(":")[2] for finding in check_sizes.check_cxx("a.h", text)], [" h has 61 lines (limit 60)"])

    def test_parameters_have_a_limit_in_the_library(self):
        seven = "A::A(std::map<int, int> a, int (*b)(int, int), int c = f(1, 2), int d, int e, int f, int g"
        self.assertEqual(check_sizes.check_cxx("src/a.cpp", seven + ") : a_(1, 2) {}"), [])
        self.assertEqual(check_sizes.check_cxx("src/a.cpp", "void f() {}"), [])
        eight = seven + ", int h) const {}"
        self.assertEqual(len(check_sizes.check_cxx("src/a.cpp", eight)), 1)
        self.assertEqual(len(check_sizes.check_cxx("include/ferry/a.h", eight)), 1)
        self.assertEqual(check_sizes.check_cxx("tests/a.cpp", eight), [])

    def test_kernels_and_declarations_have_a_limit_of_parameters_too(self):
        eight = ", ".join(f"int {name}" for name in "abcdefgh")
        for text in (f"__global__ void __launch_bounds__(f(1, 2), 1) k({eight}) {{}}", f"void f({eight});", f"virtual int f({eight}) const = 0;",
                     f"struct A {{\n  explicit(true) A({eight});\n}};", f"alignas(16) void f({eight}, int i = {{}});"):
            self.assertEqual(len(check_sizes.check_cxx("src/a.cu", text)), 1, text)
            self.assertEqual(check_sizes.check_cxx("src/a.cu", text.replace(", int h", "").replace(", int i = {}", "")), [], text)
        for text in ("static_assert(f(1, 2, 3, 4, 5, 6, 7, 8));", "int a = f(1, 2, 3, 4, 5, 6, 7, 8);",
                     "using F = void(int, int, int, int, int, int, int, int);"):
            self.assertEqual(check_sizes.check_cxx("src/a.cpp", text), [], text)

    def test_files_have_a_limit(self):
        self.assertEqual(check_sizes.check_file("a.h", "\n" * 400), [])
        self.assertEqual(len(check_sizes.check_file("a.h", "\n" * 401)), 1)
        self.assertEqual(len(check_sizes.check_file("a.py", "def f():\n" + "  a()\n" * 61)), 1)
        for path in ("dev", "tools/a.sh"):
            self.assertEqual(check_sizes.check_file(path, "f() {\n" + "  a\n" * 58 + "}\n"), [], path)
            self.assertEqual(len(check_sizes.check_file(path, "f() {\n" + "  a\n" * 59 + "}\n")), 1, path)

    def test_files_that_are_covered(self):
        for path, check in (("dev", check_sizes), ("cmake/a.cmake", check_sizes), ("python/a.py", check_sizes),
                            ("python/a.py", check_words), ("tests/a.sh", check_words), ("cmake/a.cmake", check_words)):
            with self.subTest(path=path, check=check.__name__), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, path)
                file.parent.mkdir(exist_ok=True)
                file.write_text("# rankers\n" * 401, encoding="utf-8")
                argv = mock.patch.object(sys, "argv", ["check", folder])
                with argv, contextlib.redirect_stdout(io.StringIO()) as said:
                    self.assertEqual(check.main(), 1)
                self.assertIn(path, said.getvalue())


class Invariants(unittest.TestCase):
    SECTION = ("### I7: Words\n\nA word grows.\n\n| | |\n|---|---|\n| established by | `publish` |\n"
               "| relied on by | `await_all` |\n| edge | release -> acquire |\n| tests | `Suite.Name` |\n\n")
    CODE = ("src/protocol/a.h", "void publish(int a) {}  // I7\nvoid await_all() {}\n")
    TESTS = ("tests/protocol/a.cpp", "TYPED_TEST(Suite, Name) {}\n")

    def findings(self, document=SECTION, code=(CODE,), tests=(TESTS,)):
        return check_invariants.check(document, code, tests)[1]

    def test_a_whole_one_passes(self):
        self.assertEqual(self.findings(), [])

    def test_each_part_is_needed(self):
        for part in ("| established by | `publish` |\n", "`await_all`", "release -> acquire", "| tests | `Suite.Name` |\n", "Words",
                     "A word grows."):
            self.assertEqual(len(self.findings(document=self.SECTION.replace(part, ""))), 1, part)
        self.assertEqual(len(self.findings(document=self.SECTION * 2)), 1)
        self.assertEqual(self.findings(document=self.SECTION + "### Notes\n\n| edge | |\n"), [])

    def test_both_sides_need_code_that_cites_it(self):
        self.assertTrue(self.findings(code=[("src/protocol/a.h", "void publish(int a) {}  // I7\n")]))
        self.assertTrue(self.findings(code=[("src/protocol/a.h", "void await_all() {}  // I7\n")]))
        self.assertTrue(self.findings(code=[(self.CODE[0], self.CODE[1].replace("// I7", ""))]))
        self.assertTrue(self.findings(code=[(self.CODE[0], '// I7 publish() await_all()\n')]))
        self.assertTrue(self.findings(code=[("include/ferry/a.h", self.CODE[1])]))

    def test_its_test_must_exist(self):
        self.assertTrue(self.findings(tests=[("tests/protocol/a.cpp", "// TEST(Suite, Name)\n")]))
        self.assertTrue(self.findings(document=self.SECTION.replace("`Suite.Name`", "`Suite.Name`, `Suite.Other`")))

    def test_code_cites_no_other(self):
        self.assertTrue(self.findings(code=[self.CODE, ("src/cpu/b.h", "// I8\n")]))
        self.assertTrue(self.findings(tests=[self.TESTS, ("tests/unit/b.cpp", "// see I8\n")]))

    def test_no_document_is_no_pass(self):
        count, _ = check_invariants.check("", [], [])
        self.assertEqual(count, 0)


class Readme(unittest.TestCase):
    CPU, GPU = "// What it shows.\n\nint main() {\n  send();\n  sum();\n}\n", "void f() {\n  launch();\n}\n"
    PROGRAMS = [(check_readme.SHOWN[0], CPU), (check_readme.SHOWN[1], GPU), ("examples/other.cpp", "int other();\n")]
    BLOCKS = "```cpp\nsend();\nsum();\n```\n```cpp\nlaunch();\n```\n"

    def findings(self, readme):
        return check_readme.check(readme, self.PROGRAMS)[1]

    def test_blocks_are_lines_of_the_programs(self):
        self.assertEqual(check_readme.check("# x\n" + self.BLOCKS, self.PROGRAMS), (2, []))
        self.assertEqual(self.findings(self.BLOCKS + "```cpp\nint other();\n```\n```sh\nls\n```\n"), [])
        self.assertEqual(self.findings(self.BLOCKS.replace("send();\nsum();\n", self.CPU)), [])

    def test_a_block_that_differs_fails(self):
        for changed in ("send();\n\nsum();", "sum();\nsend();", "send();\n  sum();", "send();\nsums();", ""):
            self.assertTrue(self.findings(self.BLOCKS.replace("send();\nsum();", changed)), changed)

    def test_both_programs_must_be_shown(self):
        self.assertEqual(len(self.findings("```cpp\nlaunch();\n```\n")), 1)
        self.assertEqual(check_readme.check("no block\n", self.PROGRAMS)[0], 0)

    def test_what_the_program_prints(self):
        readme = ("The program is [p](examples/readme.cpp), which prints `4 of 4`: `ninja -C build/release example && "
                  "build/release/examples/example`. Beside it [q](examples/q.cpp) lies.\n")
        self.assertEqual(check_readme.check_printed(readme, "example", "4 of 4\n"), [])
        for printed in ("", "4 of 4", "3 of 4\n", "4 of 4\n4 of 4\n"):
            self.assertEqual(len(check_readme.check_printed(readme, "example", printed)), 1, printed)
        for other in (readme.replace("readme.cpp", "r.cpp"), readme.replace("examples/example`", "example`")):
            self.assertEqual(len(check_readme.check_printed(other, "example", "4 of 4\n")), 1, other)

    def test_the_commit_of_the_figures(self):
        comparison = "2 x H200, one day. Ferry 0123abc; DeepEP 4567def.\n"
        self.assertEqual(check_readme.check_commit("Microseconds, commit 0123abc: hidden\n", comparison), [])
        for readme, measured in (("Microseconds\n", comparison), ("commit 4567def\n", comparison), ("commit 0123abc\n", "")):
            self.assertEqual(len(check_readme.check_commit(readme, measured)), 1, readme)

    def test_it_may_not_be_long(self):
        self.assertEqual(self.findings(self.BLOCKS + "\n" * (check_readme.MOST_LINES - 7)), [])
        self.assertEqual(len(self.findings(self.BLOCKS + "\n" * (check_readme.MOST_LINES - 6))), 1)

    def test_pages(self):
        page = "```cpp\nint none();\n```\n```cpp\nint other();\n```\n"
        self.assertTrue(check_readme.shows(page, "examples/other.cpp", self.PROGRAMS))
        self.assertFalse(check_readme.shows(page, check_readme.SHOWN[0], self.PROGRAMS))
        self.assertFalse(check_readme.shows(page.replace("other", "others"), "examples/other.cpp", self.PROGRAMS))


class Records(unittest.TestCase):
    """The launch policies name the record of each tuned constant: a section of the log, or lines of a file of results."""

    def test_are_there(self):
        root = pathlib.Path(__file__).parent.parent
        text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "src/cuda/policy").glob("*.h")))
        comments = " ".join(comment.lstrip("/ ") for _, comment in sources.comments_of(text))
        headings = re.findall(r"^#+ (.*)$", (root / "docs/lab/performance-log.md").read_text(encoding="utf-8"), re.MULTILINE)
        sections = re.findall(r"\blog[:,] ([A-Z][\w ]+)", comments)
        self.assertGreater(len(sections), 15)
        for section in sections:
            self.assertTrue(any(section.startswith(heading) for heading in headings), section)
        lines = re.findall(r"(\w+\.jsonl):(\d+)(?:-(\d+))?", comments)
        self.assertGreater(len(lines), 10)
        for name, first, last in lines:
            count = len((root / "benchmarks/results" / name).read_text(encoding="utf-8").splitlines())
            self.assertLessEqual(int(first), int(last or first))
            self.assertLessEqual(int(last or first), count, name)


if __name__ == "__main__":
    unittest.main()
