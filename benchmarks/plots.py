#!/usr/bin/env python3
"""SVG plots from the JSON lines of `ferry bench` and cuda_bench, for docs/performance.md and
docs/lab.

usage: plots.py FOLDER FILE...
For each FILE, where it has the records, those of processes aside:
  FOLDER/<name>-tokens.svg   time over tokens per rank, with the floor, the bound and the baseline (MPI, NCCL) that it has
  FOLDER/<name>-models.svg   the pair's ratio to its bound (CPU: its floor) for each model
  FOLDER/<name>-formats.svg  time of the pair for each format
  FOLDER/<name>-engines.svg  cuda_bench: time over tokens per rank of each order of rows, and of replays
  FOLDER/<name>-rounds.svg   where there is none: cuda_bench, of the newest commit and the oldest
The newest record of a line counts. The same records give the same bytes.
"""

import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the backend is chosen)

import records  # noqa: E402

plt.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "ferry", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6,
    "legend.frameon": False, "axes.axisbelow": True, "figure.constrained_layout.use": True,
})
OPERATIONS = ("dispatch", "combine", "pair")
FEWEST_POINTS = 3
MOST_SERIES = 4


def kind_of(record):
    """What a line over tokens keeps fixed."""
    policy = record["policy"]
    return (records.shape_of(record), record["format"], policy["combine"], policy["routing"], records.asked_of(record))


def newest(measured, key):
    """{key: record}, a later record in place of an earlier one."""
    return {key(record): record for record in measured if not records.is_codec(record)}


def longest_sweep(measured):
    """(kind, {(operation, n): record}) of the kind with the most numbers of tokens; None where all have few."""
    kinds = {}
    for record in newest(measured, lambda r: (kind_of(r), r["operation"], r["shape"]["tokens"])).values():
        kinds.setdefault(kind_of(record), {})[record["operation"], record["shape"]["tokens"]] = record
    if not kinds:
        return None
    kind, lines = max(kinds.items(), key=lambda entry: len(entry[1]))
    return (kind, lines) if len({n for _, n in lines}) >= FEWEST_POINTS else None


def plot_tokens(measured):
    found = longest_sweep(measured)
    if found is None:
        return None
    (shape, format_name, combine, routing, asked), lines = found
    operations = [name for name in OPERATIONS if any(operation == name for operation, _ in lines)]
    figure, axes = plt.subplots(1, len(operations), figsize=(3.4 * len(operations), 3.3), sharey=True, squeeze=False)
    for axis, operation in zip(axes[0], operations):
        chosen = sorted((n, record) for (of, n), record in lines.items() if of == operation)
        tokens = [n for n, _ in chosen]

        def draw(value_of, label, **style):
            points = [(n, value_of(record)) for n, record in chosen if value_of(record) is not None]
            if points:
                axis.plot(*zip(*points), label=label, **style)

        with_baseline = [record for _, record in chosen if "baseline" in record]
        draw(lambda r: r["time_us"]["median"], "Ferry", color="#1f5fa8", marker="o", markersize=3.5)
        draw(lambda r: r["floor_us"], "floor", color="#777777", linestyle=":")
        draw(lambda r: r.get("bound_us"), "bound", color="#777777", linestyle="--")
        if with_baseline:
            draw(lambda r: r["baseline"]["time_us"]["median"] if "baseline" in r else None,
                 records.baseline_name(with_baseline[0]), color="#c2571a", marker="s", markersize=3)
        axis.set(xscale="log", yscale="log", title=operation, xlabel="tokens per rank")
        axis.set_xticks(tokens, [str(n) for n in tokens], rotation=60)
        axis.minorticks_off()
    axes[0][0].set_ylabel("microseconds")
    axes[0][0].legend()
    figure.suptitle(", ".join([shape, format_name, combine, f"{routing} routing", *records.words_of(asked)]), fontsize=10)
    return figure


def ratio_of(record, bounded):
    return record["ratio_to_bound" if bounded else "ratio_to_floor"]


def plot_models(measured):
    pairs = newest([r for r in measured if r["operation"] == "pair" and "model" in r["shape"]],
                   lambda r: (r["shape"]["model"], r["shape"]["tokens"], r["shape"]["ranks"], r["format"],
                              r["policy"]["routing"], r["policy"]["combine"], records.asked_of(r)))
    # One series for each number of tokens, ranks, format and so on that every model has.
    models = list(dict.fromkeys(key[0] for key in pairs))
    series = [key for key in dict.fromkeys(key[1:] for key in pairs) if all((model, *key) in pairs for model in models)]
    if len(models) < FEWEST_POINTS or not series:
        return None
    if len(series) > MOST_SERIES:  # spread over what there is, first and last among them
        series = [series[round(i * (len(series) - 1) / (MOST_SERIES - 1))] for i in range(MOST_SERIES)]
    figure, axis = plt.subplots(figsize=(7.2, 0.9 + 0.22 * len(models) * max(1, len(series) / 2)))
    height = 0.8 / len(series)
    bounded = all("ratio_to_bound" in record for record in pairs.values())
    combines_vary = len({combine for *_, combine, _ in series}) > 1
    for index, key in enumerate(series):
        places = [place + index * height for place in range(len(models))]
        n, ranks, format_name, routing, combine, asked = key
        label = [f"n = {n}", f"{ranks} ranks", format_name, routing, *([combine] if combines_vary else []),
                 *records.words_of(asked)]
        axis.barh(places, [ratio_of(pairs[(model, *key)], bounded) for model in models], height=height, label=", ".join(label))
    axis.set_yticks([place + 0.4 - height / 2 for place in range(len(models))], models)
    axis.invert_yaxis()
    axis.axvline(1, color="#333333", linewidth=0.8)
    axis.set_xlabel(f"pair: time over its {'bound' if bounded else 'floor'}")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def plot_formats(measured):
    pairs = newest([r for r in measured if r["operation"] == "pair" and "model" not in r["shape"]],
                   lambda r: (records.shape_of(r), r["shape"]["tokens"], r["policy"]["combine"], r["policy"]["routing"],
                              records.asked_of(r), r["format"]))
    kinds = {}
    for (*kind, format_name), record in pairs.items():
        kinds.setdefault(tuple(kind), {})[format_name] = record
    if not kinds:
        return None
    kind, formats = max(kinds.items(), key=lambda entry: (len(entry[1]), entry[0][1]))
    if len(formats) < FEWEST_POINTS:
        return None
    figure, axis = plt.subplots(figsize=(6.4, 1.1 + 0.28 * len(formats)))
    axis.barh(list(formats), [record["time_us"]["median"] for record in formats.values()], color="#1f5fa8", height=0.6)
    axis.plot([record["floor_us"] for record in formats.values()], list(formats), "|", color="#c2571a",
              markersize=14, markeredgewidth=2, label="floor")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axis.invert_yaxis()
    shape, n, combine, routing, asked = kind
    axis.set_title(", ".join([shape, f"n = {n}", combine, f"{routing} routing", *records.words_of(asked)]), fontsize=10)
    axis.set_xlabel("microseconds of a pair")
    return figure


def asked_for(line):
    """What cuda_bench was asked for beside a plain round: an order of rows, or "replayed"; None: something else."""
    rows, replays = line.get("rows", "by_expert"), line.get("replay", False)
    if line.get("given") or line.get("results", "bf16") != "bf16" or (replays and rows != "by_expert"):
        return None
    return "by_expert, replayed" if replays else rows


ENGINES = {  # what plot_engines draws
    "by_expert": {"color": "#1f5fa8", "marker": "o"}, "by_expert, replayed": {"color": "#7fb0e6", "marker": "v"},
    "by_source": {"color": "#c2571a", "marker": "s"}, "padded": {"color": "#3a8a4d", "marker": "^"},
    "in_place": {"color": "#777777", "marker": "D"},
}


def kind_of_chain(line):
    return tuple(line[name] for name in ("ranks", "hidden", "top_k", "experts", "format", "max_blocks"))


def title_of_chains(kind):
    ranks, hidden, top_k, experts, format_name, limit = kind
    return (f"hidden {hidden}, top-{top_k} of {experts}, {ranks} GPUs, {format_name}"
            + (f", {limit} blocks" if limit else ""))


def plot_engines(lines):
    """Of the shape for which most was asked, time over tokens, a line for each case of ENGINES that has the points."""
    kinds = {}
    for line in lines:
        kinds.setdefault(kind_of_chain(line), {}).setdefault(asked_for(line), {})[line["n"]] = line
    drawn = {kind: {case: cases[case] for case in ENGINES if len(cases.get(case, ())) >= FEWEST_POINTS}
             for kind, cases in kinds.items()}
    kind, cases = max(drawn.items(), key=lambda entry: (len(entry[1]), sum(map(len, entry[1].values()))),
                      default=(None, {}))
    if len(cases) < FEWEST_POINTS:
        return None
    tokens = sorted({n for points in cases.values() for n in points})
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.4), sharey=True)
    for axis, operation in zip(axes, OPERATIONS):
        for case, points in cases.items():
            axis.plot(*zip(*sorted((n, line[f"{operation}_us"]) for n, line in points.items())), label=case,
                      markersize=3.5, **ENGINES[case])
        axis.set(xscale="log", yscale="log", title=operation, xlabel="tokens per rank")
        axis.set_xticks(tokens, [str(n) for n in tokens], rotation=60)
        axis.minorticks_off()
    axes[0].set_ylabel("microseconds")
    axes[0].legend()
    figure.suptitle(title_of_chains(kind), fontsize=10)
    return figure


def plot_rounds(lines):
    """Of the shape with the most lines, time over tokens: of the last commit in the file, and of the first. Lines without
    a commit are one of their own."""
    kinds = {}
    for line in lines:
        if asked_for(line) == "by_expert":
            kinds.setdefault(kind_of_chain(line), {}).setdefault(line.get("commit", "earlier"), {})[line["n"]] = line
    if not kinds:
        return None
    kind, commits = max(kinds.items(), key=lambda entry: sum(map(len, entry[1].values())))
    commits = {commit: found for commit, found in commits.items() if len(found) >= FEWEST_POINTS}
    if not commits:
        return None
    shown = list(dict.fromkeys([list(commits)[-1], list(commits)[0]]))
    tokens = sorted({n for commit in shown for n in commits[commit]})
    figure, axes = plt.subplots(1, len(OPERATIONS), figsize=(3.4 * len(OPERATIONS), 3.3), sharey=True)
    for axis, operation in zip(axes, OPERATIONS):
        for commit, style in zip(shown, ({"color": "#1f5fa8", "marker": "o"}, {"color": "#999999", "linestyle": "--"})):
            points = sorted((n, line[f"{operation}_us"]) for n, line in commits[commit].items())
            axis.plot(*zip(*points), label=commit, markersize=3.5, **style)
        axis.set(xscale="log", yscale="log", title=operation, xlabel="tokens per rank")
        axis.set_xticks(tokens, [str(n) for n in tokens], rotation=60)
        axis.minorticks_off()
    axes[0].set_ylabel("microseconds")
    axes[0].legend()
    figure.suptitle(title_of_chains(kind), fontsize=10)
    return figure


def plot_of_chains(lines):
    engines = plot_engines(lines)
    return ("engines", engines) if engines is not None else ("rounds", plot_rounds(lines))


PLOTS = {"tokens": plot_tokens, "models": plot_models, "formats": plot_formats}


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__.strip())
    folder = pathlib.Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for path in map(pathlib.Path, arguments[1:]):
        measured = [record for record in records.load(path) if not records.is_of_processes(record)]
        figures = [(name, plot(measured)) for name, plot in PLOTS.items()]
        for name, figure in [*figures, plot_of_chains(records.load_chains(path))]:
            if figure is None:
                continue
            target = folder / f"{path.stem}-{name}.svg"
            figure.savefig(target, bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)
            print(target)


if __name__ == "__main__":
    main(sys.argv[1:])
