// Options of `ferry bench`, and the sweep over all that they name.
#include "ferry/bench_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "ferry/bench_baseline.h"
#include "ferry/bench_measurers.h"
#include "ferry/bench_simulate.h"
#include "ferry/job.h"
#include "ferry/models.h"
#include "ferry/options.h"
#include "ferry/progress.h"
#include "ferry/ranks.h"
#include "ferry/simulate_report.h"

namespace ferry::app {
namespace {

const std::map<std::string, BenchOperation> kOperations = {{"pair", BenchOperation::pair},
                                                           {"dispatch", BenchOperation::dispatch},
                                                           {"combine", BenchOperation::combine},
                                                           {"encode", BenchOperation::encode},
                                                           {"decode", BenchOperation::decode}};
const std::map<std::string, RoutingKind> kRoutings = {{"uniform", RoutingKind::uniform}, {"zipf", RoutingKind::zipf}};
const std::map<std::string, Reduction> kReductions = {{"by_rank", Reduction::by_rank}, {"exact", Reduction::exact}};

struct BenchOptions {
  std::vector<std::string> operations = {"pair"};
  std::vector<std::string> formats = {"bf16"};
  std::vector<std::string> reductions = {"by_rank"};
  std::vector<std::string> routings = {"uniform"};
  std::vector<std::string> models;
  std::vector<int> tokens = {1, 32, 128, 512};
  std::vector<int> ranks = {2};
  Shape shape{0, 64, 8, 1, 7168};  // without ranks and tokens, which are swept
  double zipf_exponent = 1.0;
  int workers = 1;
  int nodes = 1;
  int max_blocks = 0;
  BenchEffort effort;
  std::string backend = "auto";
  std::string output;
  bool json = false;
  bool baseline = false;
  SimulateOptions simulation;
};

CLI::Option* add_list(CLI::App& command, const char* name, std::vector<std::string>& values, const char* help,
                      const std::vector<std::string>& allowed) {
  return command.add_option(name, values, help)->delimiter(',')->check(CLI::IsMember(allowed))->capture_default_str();
}

template <class Value>
std::vector<std::string> names_of(const std::map<std::string, Value>& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

void add_shape_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--ranks,--gpus", options.ranks, "ranks, each a thread or a GPU; more than one value is a sweep")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  command.add_option("--experts", options.shape.experts, "experts over all ranks")->capture_default_str();
  command.add_option("--top-k", options.shape.top_k, "experts of a token")->capture_default_str();
  command.add_option("--hidden", options.shape.hidden, "columns of a token")->capture_default_str();
  command.add_option("--tokens,-n", options.tokens, "tokens of each rank; more than one value is a sweep")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_list(command, "--routing", options.routings, "how tokens choose experts", names_of(kRoutings));
  command.add_option("--zipf-exponent", options.zipf_exponent, "popularity falls as 1 / position^exponent")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command.add_option("--seconds", options.effort.seconds, "time to measure each line for")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  command.add_option("--iterations", options.effort.iterations, "fixed number of iterations in place of --seconds")
      ->check(CLI::Range(0, 1'000'000));
  add_list(command, "--operation", options.operations, "what to measure; pair is a dispatch and its combine",
           names_of(kOperations));
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const AnyFormat& format : all_formats()) names.push_back(format.name());
  return names;
}

void add_sweep_options(CLI::App& command, BenchOptions& options) {
  std::vector<std::string> formats = format_names();
  formats.push_back("all");
  std::vector<std::string> models;
  for (const Model& model : kModels) models.emplace_back(model.name);
  add_list(command, "--format", options.formats, "token formats, or all", formats);
  add_list(command, "--combine", options.reductions, "how results are reduced", names_of(kReductions));
  add_list(command, "--model", options.models, "named shapes, in place of --experts, --top-k and --hidden", models)
      ->excludes("--experts", "--top-k", "--hidden");
  command.add_option("--workers", options.workers, "CPU: threads that work for each rank")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--nodes", options.nodes, "processes: logical nodes that the ranks are split over")
      ->capture_default_str();
  command.add_option("--max-blocks", options.max_blocks, "GPUs: most blocks of a kernel; 0: no limit")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command
      .add_option("--backend", options.backend,
                  "which ranks to use: auto takes GPUs where there are enough, else the processes of a job")
      ->check(CLI::IsMember({"auto", "cpu", "shmem", "cuda", "nvshmem"}))
      ->capture_default_str();
  command.add_flag(
      "--baseline", options.baseline,
      "also measure what one would use instead: the exchange written with MPI_Alltoallv, or on GPUs NCCL; with "
      "--backend nvshmem, the same ranks as one node");
  command.add_flag("--json", options.json, "print one JSON object a line");
  command.add_option("--output", options.output, "append the JSON lines to this file");
}

struct NamedShape {
  std::string name;
  Shape shape;
};

std::vector<NamedShape> shapes_of(const BenchOptions& options) {
  std::vector<NamedShape> shapes = {{"", options.shape}};
  if (!options.models.empty()) shapes.clear();
  for (const std::string& name : options.models) {
    const Model& model = *find_model(name);
    shapes.push_back({name, {0, model.experts, model.top_k, 1, model.hidden}});
  }
  return shapes;
}

std::vector<AnyFormat> formats_of(const BenchOptions& options) {
  std::vector<AnyFormat> formats;
  for (const std::string& name : options.formats) {
    if (name == "all") return {all_formats().begin(), all_formats().end()};
    formats.push_back(format_named(name));
  }
  return formats;
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
  bench.effort = options.effort;
  for (const AnyFormat& format : formats_of(options))
    for (const std::string& reduction : codecs ? std::vector{options.reductions[0]} : options.reductions)
      for (const std::string& routing : codecs ? std::vector{options.routings[0]} : options.routings)
        for (const int tokens : options.tokens)
          for (const std::string& operation : options.operations) {
            bench.operation = kOperations.at(operation);
            if (is_codec(bench.operation) != codecs) continue;
            bench.format = format;
            bench.reduction = kReductions.at(reduction);
            bench.routing = kRoutings.at(routing);
            bench.shape.max_tokens = tokens;
            require_valid(bench.shape);
            cases.push_back(bench);
          }
  return cases;
}

// Tables of lines: one for each shape, and one for its codecs.
std::vector<std::vector<BenchCase>> tables_of(const BenchOptions& options) {
  std::vector<std::vector<BenchCase>> tables;
  for (const NamedShape& named : shapes_of(options))
    for (const int ranks : options.ranks)
      for (const bool codecs : {false, true})
        if (std::vector<BenchCase> cases = cases_of(options, named, ranks, codecs); !cases.empty())
          tables.push_back(std::move(cases));
  return tables;
}

// The backend that the options name, which must fit them.
const Backend& require_backend(const BenchOptions& options) {
  const int most = *std::max_element(options.ranks.begin(), options.ranks.end());
  const Backend& chosen = choose_backend(options.backend, most);
  for (const int ranks : options.ranks) require_ranks(chosen, ranks, options.nodes);
  const bool gpus = is_gpu_backend(chosen);
  if (chosen.name == std::string("cuda") && num_processes() > 1)
    throw Error(ErrorKind::unsupported,
                fmt::format("--backend cuda: bench measures the GPUs of one process, and {} were started: start it "
                            "without a launcher, with --ranks {}, or add --backend nvshmem",
                            num_processes(), num_processes()));
  if (gpus && options.workers != 1)
    throw Error(ErrorKind::invalid_argument, "--workers: is for CPU ranks; add --backend cpu, or leave it out");
  if (!gpus && options.max_blocks != 0)
    throw Error(ErrorKind::invalid_argument, "--max-blocks: is for GPUs; add --backend cuda, or leave it out");
  if (gpus && chosen.ranks == RanksAre::processes)
    for (const std::string& operation : options.operations)
      if (is_codec(kOperations.at(operation)))
        throw Error(ErrorKind::invalid_argument,
                    fmt::format("--operation {}: is of one process; run it without a launcher", operation));
  if (!gpus && chosen.ranks == RanksAre::processes && options.baseline)
    throw Error(ErrorKind::invalid_argument, "--baseline: starts processes of its own; run it without a launcher");
  return chosen;
}

// Records as they come: on standard output with --json, and at the end of the file of --output.
class Records {
 public:
  explicit Records(const BenchOptions& options) : json_(options.json), name_(options.output) {
    if (name_.empty() || !is_first_process()) return;
    file_.open(name_, std::ios::app);
    if (!file_) throw Error(ErrorKind::invalid_argument, fmt::format("--output: cannot append to {}", name_));
  }
  void add(const Json& record) {
    const std::string line = record.dump() + "\n";
    if (json_) print(line);
    if (file_.is_open() && !(file_ << line << std::flush))
      throw Error(ErrorKind::io, fmt::format("--output: cannot write to {}", name_));
  }

 private:
  bool json_;
  std::string name_;
  std::ofstream file_;
};

void run_simulation(const BenchOptions& options, const std::string& command) {
  std::vector<std::vector<BenchCase>> tables;
  std::int64_t sources = 0;
  for (const NamedShape& named : shapes_of(options)) {
    std::vector<BenchCase>& table = tables.emplace_back();
    for (const int ranks : options.ranks)
      for (const BenchCase& bench : cases_of(options, named, ranks, false)) {
        table.push_back(bench);
        sources += ranks;
      }
  }
  Records records(options);
  Progress progress("simulate: ranks", sources);
  for (const std::vector<BenchCase>& cases : tables) {
    std::vector<Simulated> results;
    for (const BenchCase& bench : cases) {
      results.push_back(simulate(simulated_case(options.simulation, bench), [&] { progress.advance(); }));
      records.add(to_json(results.back(), command));
    }
    if (!options.json) print(to_text(results) + "\n");
  }
}

void run_bench(const BenchOptions& options, const std::string& command) {
  if (options.simulation.simulate) return run_simulation(options, command);
  const std::vector<std::vector<BenchCase>> tables = tables_of(options);
  std::int64_t count = 0;
  for (const std::vector<BenchCase>& cases : tables) count += static_cast<std::int64_t>(cases.size());
  Measurers measurers(require_backend(options), {options.ranks.front(), options.nodes, options.baseline, command});
  Records records(options);
  Progress progress("bench: lines", count);
  for (const std::vector<BenchCase>& cases : tables) {
    Measurer& measurer = measurers.of(cases.front());
    for (const BenchCase& bench : cases) {
      records.add(measurer.measure(bench));
      progress.advance();
    }
    if (!options.json) print(measurer.table() + "\n");
  }
}

// What was typed, so that a record can be repeated.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string words;
  for (std::string word; std::getline(file, word, '\0');) words += (words.empty() ? "" : " ") + word;
  return words;
}

void run_worker(const BenchOptions& options) {
  BenchCase bench;
  bench.operation = kOperations.at(options.operations.at(0));
  bench.shape = options.shape;
  bench.shape.ranks = options.ranks.at(0);
  bench.shape.max_tokens = options.tokens.at(0);
  bench.routing = kRoutings.at(options.routings.at(0));
  bench.zipf_exponent = options.zipf_exponent;
  bench.effort = options.effort;
  require_valid(bench.shape);
  run_mpi_worker(bench);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand(
      "bench", "measure the exchange, the codecs, the wire and a baseline, or simulate up to 2048 ranks");
  add_shape_options(*bench, *options);
  add_sweep_options(*bench, *options);
  add_simulate_options(*bench, options->simulation);
  for (const char* measured :
       {"--baseline", "--operation", "--workers", "--seconds", "--iterations", "--backend", "--max-blocks", "--nodes"})
    bench->get_option("--simulate")->excludes(bench->get_option(measured));
  bench->callback([options] { run_bench(*options, command_line()); });
  const auto worker_options = std::make_shared<BenchOptions>();
  CLI::App* worker = app.add_subcommand("bench-mpi-worker", "a process of the baseline")->group("");
  add_shape_options(*worker, *worker_options);
  worker->callback([worker_options] { run_worker(*worker_options); });
}

}  // namespace ferry::app
