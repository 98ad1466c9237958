#!/usr/bin/env python3
"""Words that belong to one file each: atomics, spinning, asm and the parser; what a library must not do at all; and
words that docs/glossary.md has another one for, in identifiers, comments and pages.

usage: check_words.py [ROOT]
"""

import re
import sys

import sources

# The inside of parentheses, three deep; and a loop whose whole work is its condition (not the end of a do loop).
INSIDE = r"[^()]*(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)[^()]*)*"
EMPTY_LOOP = rf"(?<!\}} )\bwhile\s*\({INSIDE}\)\s*;"

# (what, pattern, folders it is looked for in, files where it may stand)
RULES = [
    ("atomic access", re.compile(r"\batomic(_\w+)?\b|\bmemory_order\w*|\b__(atomic|sync)_\w+|(?<!asm )\bvolatile\b|\b__threadfence\w*"
                                 r"|\batomic(Add|Sub|Exch|Min|Max|Inc|Dec|CAS|And|Or|Xor)\w*|\b(atomic_)?thread_fence\b"),
     ("include", "src", "tool", "python"), re.compile(r"include/ferry/detail/base/order\.h")),
    ("spinning", re.compile(r"\b(sched_)?yield\b|\bsleep_(for|until)\b|\b_mm_pause\b|\b__nanosleep\b|\b(u|nano)?sleep\s*\("
                            rf"|\bwhile\s*\([^;{{}}]*\bload_(acquire|relaxed)\b|{EMPTY_LOOP}"
                            r"|\bfor\s*\(\s*;\s*;\s*\)[^}]*\bload_(acquire|relaxed)\b"),
     ("include", "src", "tool", "python"), re.compile(r"include/ferry/detail/base/wait\.h|(src|include/ferry/detail)/[\w/]*wait(s|er)\.(h|cuh)")),
    ("asm", re.compile(r"\b(asm|__asm|__asm__)\b"),
     ("include", "src", "tool", "python", "tests", "benchmarks", "examples"), re.compile(r"include/ferry/detail/(cuda/team|formats)/ptx\w*\.cuh")),
    ("ending the program", re.compile(r"\bstd::(abort|exit|quick_exit|_Exit|terminate)\b|(?<![\w.>:])(?<!void )(abort|exit|_exit)\s*\("),
     ("include", "src"), None),
    ("printing", re.compile(r"\bstd::(cout|cerr|clog)\b|\b(std::)?(f|v)?printf\s*\(|\b(std::)?(f?puts|perror)\s*\("
                            r"|\bfmt::print\b"),
     ("include", "src"), None),
    ("an earlier name of DirectFabric", re.compile(r"\bPeerFabric\b"),
     ("include", "src", "tool", "tests", "benchmarks", "examples"), re.compile(r"include/ferry/cuda/hooked_exchange\.cuh")),
    ("an earlier name of a pipeline's stages", re.compile(r"\bpieces\b"), ("include",), None),
    ("an alias by typedef, not by using", re.compile(r"\btypedef\b"),
     ("include", "src", "tool", "python", "tests", "benchmarks", "examples"), None),
    ("the parser", re.compile(r"\bCLI::"), ("tool", "tests"),
     re.compile(r"tool/command_line/(command_line|bench_options|parser)\.(h|cpp)")),
]

# (word that is refused in identifiers, comments and pages, what the glossary says)
REFUSED = [(re.compile(word), say) for word, say in (
    (r"\bLoose(Team|_team)\w*|\bloose[_ ]team\w*", "warpwise team"),
    (r"\bTeamGroup\b", "synced team"),
    (r"\bsharers\b", "sync unit"),
    (r"\bDrawnShare\b|\bdrawn_share\b|\b(tokens|results)_drawn\b|\b(token|result)_tickets\b", "work queue"),
    (r"\blook(s|ed|ing)?[_ ]ahead\w*|\blooks_ahead\b", "prefetch"),
    (r"\bBlockPlace\b|\bplace_of_half\b|\bhas_halves\w*|\bdispatch_halves\b|\bkHalves\b", "logical block"),
    (r"\bRowRing\b|\brow_ring\b|\bRingOrder\b|\bkRing\w+|\w*ring_bytes\b|\bprepare_halves\b|\btakes_rings\b|\bhas_rings\w*|\bsum_rows_by_ring\b", "pipeline"),
    (r"\bholds_next\b", "trigger late"),
    (r"\bRankers?\b|\brankers?\b|\bRanking(Share|Args|Memory)\b|\branking_(words|bytes|threads)\b|\bblocks_that_rank\b|\brank_(entries|within|share|ids)\b"
     r"|\bRankEntries\b|\brank within (its|the|an) expert\b",
     "route, routing block, position in expert"),
    (r"\bKept(Rows?|Start|Token)\b|\bkept_(rows|slots|starts)\b|\bload_kept\b|\bKeepingRowStarts\b|\bkeep_row_starts\b", "handle"),
    (r"\bis_twin\b|\btwins?\b|\bkTwins\b", "duplicate"),
    (r"\bsay_started\b|\bmove_on\b", "arrival, epoch"),
    (r"\bLeftovers\b|\bleftovers?_?\b", "deferred free"),
    (r"\bseat_(of|ranks)\b", "claim"),
    (r"\bHeapTickets\b", "ticket"),
    (r"\bNearFabric\b|\bnear_fabric\b|\bkReachesFar\b|\breaches_far\b|\bis_near\b|\ball_near\b|\bnear_peer\b"
     r"|\bany_far\b|\bpeer_launchers\b|\bfind_peer_dispatch\b|\breaches_remote_ranks\b", "direct, remote, fabric"),
    (r"\bpast_cache\b|PastCache\b|\w+_past_the_cache\b", "non-temporal"),
    (r"\b[Ww]ide_?[Ww]eights?\b", "f32"),
    (r"\bfetch_add_ordered\b", "acquire-release"),
    (r"\b[Rr]ehears\w*", "warm-up"),
    (r"\b(Shmem)?Meeting\b|\bmeeting_\b|\bnet/meeting", "bootstrap"),
    (r"\bkToldToGiveUp\b", "relayed"),
    (r"\b(DevicePlace|LocalPlace)\b|\bplace_of_block\b", "device, logical block"),
    (r"\b(Plan|Process)Settings\b|\bconformance::(Plan|Backend)\b|\bthread_backend\b", "scenario, target"),
    (r"\b(parts|sends|part)_alone\b|\bkMost\w*Alone\b|\bparts_roles\b|\b(sending|dispatching)_part\b",
     "policy, regime"),
    (r"\b[Nn]ap(s|ped|ping)?\b|\bkNap\w*", "back off"),
    (r"\b[Ss]eats?_?\b", "claim, rank"),
    (r"\bprotocol_shape\b|\bid_base\b", "local view"),
    (r"\bby_more_\w*|\bof_smaller\w*", "expert rank, result"),
    (r"\bkIsWide\b|\bkWide\b|\bis_wide\b", "f32"),
    (r"\brings?\b", "pipeline"),
    (r"\b(struct|class) Work\b(?![>,])|\bResident\b", "problem, device limits"),
)]
# Words that are plain English in comments and pages, and refused in identifiers.
REFUSED_NAMES = [(re.compile(word), say) for word, say in (
    (r"\b(early|early_\w*|\w+_early|\w*Early\w*)\b", "prefetch, trigger at start, trigger late"),
)]
# Parts of identifiers, whatever stands before and behind them: kRankers, RankerShare, num_rankers.
REFUSED_PARTS = {part: say for parts, say in (
    ("ranker rankers", "route, routing block"), ("rehearse rehearses rehearsal", "warm-up"), ("lookahead", "prefetch"),
    ("nap naps", "back off"), ("sharer sharers", "sync unit"), ("twin twins", "duplicate"), ("ring rings", "pipeline"),
    ("leftover leftovers", "deferred free"), ("seat seats", "claim, rank"),
) for part in parts.split()}
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
REFUSED_IN = ("include", "src", "tool", "python", "tests", "benchmarks", "examples")
GLOSSARY = "docs/glossary.md"  # it has the words of peers, too
INCLUDES = re.compile(r'^\s*#\s*include\s*[<"](atomic|cuda/atomic)[>"]', re.MULTILINE)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def is_caller(path, what):
    """The conformance suite stands for the threads of a caller, which may wait and count as they like."""
    return path.startswith("src/conformance/") and what in ("atomic access", "spinning")


def check_file(path, text):
    code = sources.code_of(text)
    findings = []
    for what, pattern, folders, allowed in RULES:
        if path.split("/")[0] not in folders or (allowed and allowed.fullmatch(path)) or is_caller(path, what):
            continue
        # Where a name of our own happens to be a word of the rule inside an #include, the include is not the use.
        body = re.sub(r"^\s*#\s*include[^\n]*", "", code, flags=re.MULTILINE)
        for match in pattern.finditer(body):
            where = f" (only {allowed.pattern})" if allowed else " (not in the library)"
            findings.append(f"{path}:{line_of(body, match.start())}: {what}: {match.group().split(chr(10))[0]}{where}")
    if path != "include/ferry/detail/base/order.h" and not path.startswith(("tests/", "src/conformance/")):
        findings += [f"{path}:{line_of(text, match.start())}: includes <{match.group(1)}> (only include/ferry/detail/base/order.h)"
                     for match in INCLUDES.finditer(text)]
    return findings + refused_words(path, text, code)


def refused_words(path, text, code):
    if path.split("/")[0] not in REFUSED_IN:
        return []
    lines = [(line_of(code, match.start()), match.group(), say)
             for word, say in REFUSED + REFUSED_NAMES for match in word.finditer(code)]
    lines += [(line_of(code, name.start()), name.group(), REFUSED_PARTS[part.lower()])
              for name in IDENTIFIER.finditer(code) for part in PART.findall(name.group()) if part.lower() in REFUSED_PARTS]
    lines += [(number + line_of(comment, match.start()) - 1, match.group(), say)
              for number, comment in sources.comments_of(text) for word, say in REFUSED
              for match in word.finditer(comment)]
    return as_findings(path, lines)


def as_findings(path, lines):
    return [f"{path}:{number}: '{word}': docs/glossary.md says {say}" for number, word, say in sorted(lines)]


def check_page(path, text):
    return [] if path == GLOSSARY else as_findings(path, [(line_of(text, match.start()), match.group(), say)
                                                          for word, say in REFUSED for match in word.finditer(text)])


def main():
    root = sources.root_argument()
    files = sources.files_under(root, REFUSED_IN)
    pages = sources.files_under(root, ("docs",), (".md",))
    pages += sources.files_under(root, (*REFUSED_IN, "python-deepep", "cmake"), (".py", ".sh", ".cmake"))
    pages += [(path.name, path.read_text(encoding="utf-8")) for path in sorted(root.glob("*.md"))]
    return sources.finish("words", len(files) + len(pages), [finding for file in files for finding in check_file(*file)] +
                          [finding for page in pages for finding in check_page(*page)])


if __name__ == "__main__":
    sys.exit(main())
