// The options of `ferry bench`, in groups: the shape, what is measured and where, and what is simulated.
#include <fmt/format.h>

#include "ferry/ferry.h"
#include "tool/command_line/parser.h"
#include "tool/commands/bench/bench_command.h"
#include "tool/commands/options/options.h"
#include "tool/ranks/ranks_unasked.h"

namespace ferry::app {
namespace {

constexpr const char* kMeasure = "Measure";  // the group of all options that --simulate excludes

// What the process of a baseline is given, too.
void add_shape_options(CLI::App& command, BenchOptions& options) {
  command.option_defaults()->group("Shape; several values, with commas between them, are a sweep");
  in_range(command.add_option("--ranks,--gpus", options.ranks, "Ranks, each a thread, a process or a GPU")
               ->delimiter(',')
               ->capture_default_str(),
           std::int64_t{1}, kMaxRanks);
  in_range(command.add_option("--experts", options.shape.experts, "Experts over all ranks")->capture_default_str(),
           std::int64_t{1}, kNoLimit);
  in_range(command.add_option("--top-k", options.shape.top_k, "Experts of a token")->capture_default_str(),
           std::int64_t{1}, kNoLimit);
  in_range(command.add_option("--hidden", options.shape.hidden, "Columns of a token")->capture_default_str(),
           std::int64_t{1}, kNoLimit);
  in_range(command
               .add_option("--tokens,-n,--tokens-per-rank", options.tokens,
                           "Tokens of each rank: counts, not a file as in layer")
               ->delimiter(',')
               ->capture_default_str(),
           std::int64_t{1}, kNoLimit);
  add_list(command, "--routing", options.routings, "How tokens choose experts", routing_names());
  in_range(command
               .add_option("--zipf-exponent", options.zipf_exponent,
                           "Popularity falls as 1 / position^exponent, with --routing zipf")
               ->capture_default_str(),
           0.0, 10.0);
}

void add_effort_options(CLI::App& command, BenchOptions& options) {
  command.option_defaults()->group(kMeasure);
  add_list(command, "--operation", options.operations, "What to measure; pair is a dispatch and its combine",
           operation_names());
  in_range(command
               .add_option(
                   "--seconds", options.effort.seconds,
                   fmt::format("Time to measure each line for, beside set-up and wire; takes {} to {} iterations, on "
                               "GPUs {} to {} replays of a graph of many",
                               kFewestIterations, kMostIterations, kFewestReplays, kMostReplays))
               ->capture_default_str()
               ->each([&options](const std::string&) { options.names_seconds = true; }),
           0.01, 600.0);
  in_range(command.add_option("--iterations", options.effort.iterations, "Number of iterations, in place of --seconds"),
           std::int64_t{1}, std::int64_t{1'000'000});
  in_range(command.add_option("--cache", options.cache_mib,
                              "CPU ranks: MiB of the last-level cache, where the system names that of a larger host. "
                              "It sizes the input sets and the wire's buffers"),
           std::int64_t{1}, std::int64_t{1'000'000});
}

void add_sweep_options(CLI::App& command, BenchOptions& options) {
  add_formats_option(command, options.formats);
  add_list(command, "--combine", options.combines, kCombineHelp, combine_names())->default_str("by_rank");
  add_list(command, "--reduction", options.reductions, kReductionHelp, reduction_names());
  add_list(command, "--model", options.models,
           fmt::format("Named shapes, in place of --experts, --top-k and --hidden: {}, or all (their sizes: ferry info "
                       "--list-models)",
                       fmt::join(model_names(), ", ")),
           and_all(model_names()), "MODEL")
      ->excludes("--experts", "--top-k", "--hidden");
}

void add_measure_options(CLI::App& command, BenchOptions& options) {
  add_backend_option(command, options.backend, kBackendHelp);
  add_list(command, "--result-format", options.results, result_format_help(), result_format_names(), "FORMAT");
  add_list(command, "--rows", options.rows, "In which order a rank's rows lie (docs/row-orders.md)",
           row_order_names({RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place}));
  one_of(command.add_option("--message-copies", options.message_copies, kCopiesHelp)
             ->delimiter(',')
             ->capture_default_str(),
         message_copies_allowed());
  command.add_flag("--encoded", options.encoded, "Give tokens that are encoded already, in the format of the line");
  command.add_flag("--replay", options.replays,
                   "Dispatches repeat the routing of an earlier one, by its handle (docs/handles.md)");
  in_range(
      command.add_option("--workers", options.workers, "CPU ranks: threads that work for each")->capture_default_str(),
      std::int64_t{1}, std::int64_t{256});
  in_range(command.add_option("--nodes", options.nodes, "Processes: logical nodes that the ranks are split over")
               ->capture_default_str(),
           std::int64_t{1}, kMaxRanks);
  in_range(command.add_option("--max-blocks", options.max_blocks, "GPUs: most blocks of a kernel; 0: no limit")
               ->capture_default_str(),
           std::int64_t{0}, std::int64_t{1'000'000});
  in_range(command.add_option("--wait-blocks", options.wait_blocks,
                              "GPUs: measure calls in two halves, the second of at most so many blocks; 0: no limit"),
           std::int64_t{0}, std::int64_t{1'000'000});
  command.add_flag("--baseline", options.baseline,
                   "Also measure the same exchange written with MPI; on GPUs NCCL's all-gather and reduce-scatter of "
                   "the same tokens; with --backend nvshmem, the same ranks as one node");
}

void add_simulate_options(CLI::App& command, SimulateOptions& options) {
  command.option_defaults()->group("Simulate");
  CLI::Option* simulate = command.add_flag("--simulate", options.simulate,
                                           "Compute, for up to 2048 ranks, what a round puts on every link and the "
                                           "least time of it; runs nothing");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->needs(simulate)->capture_default_str();
  };
  constexpr double kLeastSpeed = 1e-6, kMost = 1e6;
  in_range(add("--ranks-per-node", options.ranks_per_node, "Ranks that NVLink joins"), std::int64_t{1},
           kMaxRanksPerNode);
  in_range(add("--node-limit", options.node_limit, "A token's experts lie in at most this many nodes; 0: anywhere"),
           std::int64_t{0}, kMaxTopK);
  in_range(add("--nvlink", options.nvlink_gb, "GB/s of a rank within its node, each way"), kLeastSpeed, kMost);
  in_range(add("--nvlink-us", options.nvlink_us, "Latency within a node"), 0.0, kMost);
  in_range(add("--nic", options.nic_gb, "GB/s of a rank between nodes, each way"), kLeastSpeed, kMost);
  in_range(add("--nic-us", options.nic_us, "Latency between nodes"), 0.0, kMost);
  in_range(add("--nic-operations", options.nic_operations, "Puts and signals of a rank's NIC in a us; 0: no limit"),
           0.0, kMost);
}

void add_output_options(CLI::App& command, BenchOptions& options) {
  command.option_defaults()->group("Output");
  add_json_flag(command, options.json, "Print one JSON object a line");
  add_file(command, "--output", options.output, "Append the JSON lines to this file");
  add_file(command, "--trace", options.trace,
           "Record a few more rounds of each line, and write them to this file, which ui.perfetto.dev opens")
      ->excludes("--simulate");
  add_quiet_flag(command);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App& bench = *app.add_subcommand(
      "bench", "Measure the exchange, the codecs, the wire and a baseline, or simulate up to 2048 ranks");
  add_shape_options(bench, *options);
  add_sweep_options(bench, *options);
  add_effort_options(bench, *options);
  add_measure_options(bench, *options);
  add_simulate_options(bench, options->simulation);
  add_output_options(bench, *options);
  for (CLI::Option* measured : bench.get_options([](CLI::Option* each) { return each->get_group() == kMeasure; }))
    bench.get_option("--simulate")->excludes(measured);
  bench.footer(
      "Examples:\n"
      "  ferry bench --backend cpu --ranks 2,4 --tokens 32,512 --format bf16,mxfp8\n"
      "  ferry bench --backend cuda --ranks 8 --model deepseek-v3 --format fp8_block128 --baseline\n"
      "  ferry bench --operation encode,decode --format all --hidden 7168 --tokens 512\n"
      "  ferry bench --simulate --ranks 64,256 --model kimi-k2 --tokens 128\n\n" +
      std::string(kHelpEnd));
  bench.callback([options, ranks = bench.get_option("--ranks")] {
    if (ranks->count() == 0 && !options->simulation.simulate)
      options->ranks = {ranks_unasked(options->backend, options->ranks.front())};
    run_bench_command(*options);
  });
  const auto worker_options = std::make_shared<BenchOptions>();
  CLI::App& worker = *app.add_subcommand("bench-mpi-worker", "A process of the baseline")->group("");
  add_shape_options(worker, *worker_options);
  add_effort_options(worker, *worker_options);
  worker.callback([worker_options] { run_bench_worker_command(*worker_options); });
}

}  // namespace ferry::app
