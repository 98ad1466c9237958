// The sweep of `ferry bench` over all that its options name.
#include "tool/commands/bench/bench_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "tool/bench/base/bench_machine.h"
#include "tool/bench/base/bench_trace.h"
#include "tool/bench/base/results.h"
#include "tool/bench/bench_measurers.h"
#include "tool/bench/mpi/bench_baseline.h"
#include "tool/commands/bench/bench_output.h"
#include "tool/commands/options/models.h"
#include "tool/commands/options/options.h"
#include "tool/io/interrupts.h"
#include "tool/io/named_path.h"
#include "tool/ranks/job/job.h"
#include "tool/ranks/ranks.h"
#include "tool/ranks/shape_names.h"
#include "tool/simulate/simulate_report.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

const std::map<std::string, BenchOperation> kOperations = {{"pair", BenchOperation::pair},
                                                           {"dispatch", BenchOperation::dispatch},
                                                           {"combine", BenchOperation::combine},
                                                           {"encode", BenchOperation::encode},
                                                           {"decode", BenchOperation::decode}};
const std::map<std::string, RoutingKind> kRoutings = {{"uniform", RoutingKind::uniform}, {"zipf", RoutingKind::zipf}};

template <class Value>
std::vector<std::string> names_of(const std::map<std::string, Value>& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

struct NamedShape {
  std::string name;
  Shape shape;
  ShapeNames options;  // what it is refused by
};

std::vector<Model> models_of(const BenchOptions& options) {
  std::vector<Model> models;
  for (const std::string& name : options.models) {
    if (name == "all") return {kModels.begin(), kModels.end()};
    models.push_back(*find_model(name));
  }
  return models;
}

std::vector<NamedShape> shapes_of(const BenchOptions& options) {
  std::vector<NamedShape> shapes;
  if (options.models.empty()) {
    shapes.push_back({"", options.shape, {}});
    if (options.shape.experts == BenchOptions{}.shape.experts)
      shapes.front().options.experts_are = "the default of --experts";
  }
  for (const Model& model : models_of(options)) {
    const std::string name(model.name);
    shapes.push_back({name, {0, model.experts, model.top_k, 1, model.hidden}, {}});
    shapes.back().options.experts_are = "of --model " + name;
  }
  return shapes;
}

// What --reduction, --combine and --message-copies name, each with each.
std::vector<std::pair<Reductions, int>> exchanges_of(const BenchOptions& options) {
  const auto or_unsaid = [](const std::vector<std::string>& names) {
    return names.empty() ? std::vector{std::string()} : names;
  };
  std::vector<std::pair<Reductions, int>> all;
  for (const std::string& reduction : or_unsaid(options.reductions))
    for (const std::string& combine : or_unsaid(options.combines))
      for (const int copies : options.message_copies) all.emplace_back(reductions_named(reduction, combine), copies);
  return all;
}

// All lines of one shape, number of ranks and kind; codecs know neither routing nor reduction.
std::vector<BenchCase> cases_of(const BenchOptions& options, const NamedShape& named, int ranks, bool codecs) {
  std::vector<BenchCase> cases;
  BenchCase bench;
  bench.model = named.name;
  bench.shape = named.shape;
  bench.shape.ranks = ranks;
  bench.zipf_exponent = options.zipf_exponent;
  bench.workers = options.workers;
  bench.max_blocks = options.max_blocks;
  bench.wait_blocks = options.wait_blocks;
  bench.effort = options.effort;
  bench.names_rows = options.rows != BenchOptions{}.rows;
  bench.encoded = options.encoded;
  bench.replays = options.replays;
  bench.names_results = options.results != BenchOptions{}.results;
  bench.names_reduction = !options.reductions.empty();
  bench.names_copies = options.message_copies != BenchOptions{}.message_copies;
  const auto swept = [codecs](auto values) {
    if (codecs) values.resize(1);
    return values;
  };
  for (const AnyFormat& format : formats_named(options.formats))
    for (const auto& [reductions, copies] : swept(exchanges_of(options)))
      for (const std::string& results : swept(options.results))
        for (const std::string& rows : swept(options.rows))
          for (const std::string& routing : swept(options.routings))
            for (const int tokens : options.tokens)
              for (const std::string& operation : options.operations) {
                bench.operation = kOperations.at(operation);
                if (is_codec(bench.operation) != codecs) continue;
                bench.format = format;
                bench.reduction = reductions.of_combine;
                bench.chooses = reductions.choose();
                bench.message_copies = copies;
                bench.results = result_format_named(results);
                bench.rows = row_order_named(rows);
                bench.routing = kRoutings.at(routing);
                bench.shape.max_tokens = tokens;
                require_shape(bench.shape, named.options);
                require_rows_fit(exchange_options(bench), bench.reduction);
                cases.push_back(bench);
              }
  return cases;
}

// Tables of lines: one for each shape, and one for its codecs.
std::vector<std::vector<BenchCase>> tables_of(const BenchOptions& options) {
  std::vector<std::vector<BenchCase>> tables;
  for (const NamedShape& named : shapes_of(options))
    for (const int ranks : options.ranks)
      for (const bool codecs : {false, true}) {
        if (codecs && ranks != options.ranks.front()) continue;  // of one core, whatever the ranks
        if (std::vector<BenchCase> cases = cases_of(options, named, ranks, codecs); !cases.empty())
          tables.push_back(std::move(cases));
      }
  return tables;
}

// What contradicts the backend that was named is refused; what that of `auto` has no use for gets a note.
void refuse_or_note(const BenchOptions& options, const char* option, const char* is_for, const char* backend) {
  if (options.backend != "auto")
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: {}; add --backend {}, or leave it out", option, is_for, backend));
  note(fmt::format("{} has no effect: it {}; add --backend {}", option, is_for, backend));
}

// The backend that the options name, which must fit them.
const Backend& require_backend(const BenchOptions& options) {
  const int most = *std::max_element(options.ranks.begin(), options.ranks.end());
  const Backend& chosen = choose_backend(options.backend, most);
  for (const int ranks : options.ranks) require_ranks(chosen, ranks, options.nodes);
  note_repeated(chosen);
  const bool gpus = is_gpu_backend(chosen);
  if (chosen.kind == WorldKind::cuda_processes)
    throw Error(ErrorKind::unsupported,
                fmt::format("--backend cuda: bench measures the GPUs of one process, and {} were started: start it "
                            "without a launcher, with --ranks {}, or add --backend nvshmem",
                            num_processes(), num_processes()));
  if (gpus && options.workers != 1) refuse_or_note(options, "--workers", "is for CPU ranks", "cpu");
  if (gpus && options.cache_mib != 0) refuse_or_note(options, "--cache", "is for CPU ranks", "cpu");
  if (!gpus && options.max_blocks != 0) refuse_or_note(options, "--max-blocks", "is for GPUs", "cuda");
  if (!gpus && options.wait_blocks >= 0) refuse_or_note(options, "--wait-blocks", "is for GPUs", "cuda");
  if (gpus && chosen.ranks == RanksAre::processes)
    for (const std::string& operation : options.operations)
      if (is_codec(kOperations.at(operation)))
        throw Error(ErrorKind::invalid_argument,
                    fmt::format("--operation {}: is of one process; run it without a launcher", operation));
  if (!gpus && chosen.ranks == RanksAre::processes && options.baseline)
    throw Error(ErrorKind::invalid_argument, "--baseline: starts processes of its own; run it without a launcher");
  return chosen;
}

// What was given, and only exchanges have.
void note_of_codecs(const BenchOptions& options) {
  const BenchOptions defaults;
  std::vector<const char*> given;
  for (const auto& [option, is_given] :
       {std::pair{"--ranks", options.ranks.size() > 1}, std::pair{"--workers", options.workers != defaults.workers},
        std::pair{"--combine", !options.combines.empty()}, std::pair{"--reduction", !options.reductions.empty()},
        std::pair{"--message-copies", options.message_copies != defaults.message_copies},
        std::pair{"--result-format", options.results != defaults.results},
        std::pair{"--rows", options.rows != defaults.rows},
        std::pair{"--routing", options.routings != defaults.routings}, std::pair{"--encoded", options.encoded},
        std::pair{"--replay", options.replays}, std::pair{"--max-blocks", options.max_blocks != defaults.max_blocks},
        std::pair{"--wait-blocks", options.wait_blocks != defaults.wait_blocks}})
    if (is_given) given.push_back(option);
  if (!given.empty())
    note(fmt::format("{} {} no effect: --operation names codecs only", fmt::join(given, ", "),
                     given.size() == 1 ? "has" : "have"));
}

void note_unused_zipf_exponent(const BenchOptions& options) {
  if (options.zipf_exponent != BenchOptions{}.zipf_exponent &&
      std::find(options.routings.begin(), options.routings.end(), "zipf") == options.routings.end())
    note("--zipf-exponent has no effect without --routing zipf");
}

// What was given, and changes nothing of what is measured.
void note_what_has_no_effect(const BenchOptions& options) {
  const BenchOptions defaults;
  const auto is_of_codec = [](const std::string& name) { return is_codec(kOperations.at(name)); };
  if (std::all_of(options.operations.begin(), options.operations.end(), is_of_codec)) {
    if (!options.trace.empty()) note("--trace has no effect: it is of exchanges, and --operation names codecs only");
    if (options.baseline) note("--baseline has no effect: it is of exchanges, and --operation names codecs only");
    note_of_codecs(options);
  }
  note_unused_zipf_exponent(options);
  if (options.effort.iterations != 0 && options.names_seconds) note("--seconds has no effect beside --iterations");
}

void take_cache(const BenchOptions& options) {
  if (options.cache_mib != 0) set_last_level_cache(static_cast<std::size_t>(options.cache_mib) << 20);
}

SimulatedCase simulated_case(const SimulateOptions& options, const BenchCase& bench) {
  Cluster cluster;
  cluster.ranks = bench.shape.ranks;
  cluster.ranks_per_node = options.ranks_per_node;
  cluster.speed = {LinkSpeed{options.nvlink_gb * 1e9, options.nvlink_us * 1e-6, 0},
                   LinkSpeed{options.nic_gb * 1e9, options.nic_us * 1e-6, options.nic_operations * 1e6}};
  return {bench, cluster, options.node_limit};
}

// Simulates in place of measuring. Progress counts the ranks.
class Simulator final : public Measurer {
 public:
  Simulator(const SimulateOptions& options, std::string command, std::int64_t sources)
      : options_(options), command_(std::move(command)), progress_("simulate: ranks", sources) {}
  Json measure(const BenchCase& bench) override {
    const Simulated result = simulate(simulated_case(options_, bench), [this] { progress_.advance(); });
    results_.add(result);
    return to_json(result, command_);
  }
  std::string table() override {
    const std::vector<Simulated> results = results_.take();
    return results.empty() ? std::string() : to_text(results);
  }
  std::string footnote() const override { return {}; }

 private:
  const SimulateOptions options_;
  const std::string command_;
  Progress progress_;
  Results<Simulated> results_;
};

using BenchTables = std::vector<std::vector<BenchCase>>;

std::int64_t count_lines(const BenchTables& tables) {
  std::int64_t count = 0;
  for (const std::vector<BenchCase>& cases : tables) count += static_cast<std::int64_t>(cases.size());
  return count;
}

// Line after line; Ctrl-C and a line that fails print what is done.
void run_tables(const BenchOptions& options, const BenchTables& tables,
                const std::function<Measurer&(const BenchCase&)>& measurer_of,
                const std::function<void()>& after_line) {
  BenchOutput output(options, count_lines(tables));
  const OnInterrupt interrupted([&output] { output.interrupt(); });
  try {
    for (const std::vector<BenchCase>& cases : tables) {
      Measurer& measurer = measurer_of(cases.front());
      output.begin_table(measurer);
      for (const BenchCase& bench : cases) {
        output.add(measurer.measure(bench));
        after_line();
      }
      output.end_table();
    }
  } catch (const std::exception&) {
    output.fail();
    throw;
  }
  output.finish();
}

void run_simulation(const BenchOptions& options, const std::string& command) {
  note_unused_zipf_exponent(options);
  BenchTables tables;
  std::int64_t sources = 0;
  for (const NamedShape& named : shapes_of(options)) {
    std::vector<BenchCase>& table = tables.emplace_back();
    for (const int ranks : options.ranks)
      for (const BenchCase& bench : cases_of(options, named, ranks, false)) {
        table.push_back(bench);
        sources += ranks;
      }
  }
  Simulator simulator(options.simulation, command, sources);
  run_tables(
      options, tables, [&](const BenchCase&) -> Measurer& { return simulator; }, [] {});
}

// All lines give their rounds to it.
std::unique_ptr<BenchTrace> trace_of(const BenchOptions& options, BenchTables& tables) {
  if (options.trace.empty()) return nullptr;
  require_distinct({{"--output", options.output}, {"--trace", options.trace}}, {});
  auto trace = std::make_unique<BenchTrace>(options.trace);
  for (std::vector<BenchCase>& cases : tables)
    for (BenchCase& bench : cases) bench.trace = trace.get();
  return trace;
}

void write_trace(const BenchOptions& options, BenchTrace& trace) {
  in_first_process(kDefaultDeadline, [&] {
    trace.write();
    if (!options.json) print(trace.summary());
  });
}

// What was typed, so that a record can be repeated.
std::string typed_command() {
  std::ifstream file("/proc/self/cmdline");
  std::string words;
  for (std::string word; std::getline(file, word, '\0');) words += (words.empty() ? "" : " ") + word;
  return words;
}

}  // namespace

std::vector<std::string> operation_names() { return names_of(kOperations); }
std::vector<std::string> routing_names() { return names_of(kRoutings); }

void run_bench_command(const BenchOptions& options) {
  const std::string command = typed_command();
  if (options.simulation.simulate) return run_simulation(options, command);
  note_what_has_no_effect(options);
  take_cache(options);
  BenchTables tables = tables_of(options);
  Measurers measurers(require_backend(options), {options.ranks.front(), options.nodes, options.baseline, command});
  const std::unique_ptr<BenchTrace> trace = trace_of(options, tables);
  Progress progress("bench: lines", count_lines(tables));
  run_tables(
      options, tables, [&](const BenchCase& bench) -> Measurer& { return measurers.of(bench); },
      [&] { progress.advance(); });
  if (trace != nullptr) write_trace(options, *trace);
}

void run_bench_worker_command(const BenchOptions& options) {
  BenchCase bench;
  bench.operation = kOperations.at(options.operations.at(0));
  bench.shape = options.shape;
  bench.shape.ranks = options.ranks.at(0);
  bench.shape.max_tokens = options.tokens.at(0);
  bench.routing = kRoutings.at(options.routings.at(0));
  bench.zipf_exponent = options.zipf_exponent;
  bench.effort = options.effort;
  take_cache(options);
  require_valid(bench.shape);
  run_mpi_worker(bench);
}

}  // namespace ferry::app
