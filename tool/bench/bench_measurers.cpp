#include "tool/bench/bench_measurers.h"

#include <optional>
#include <utility>
#include <vector>

#include "tool/bench/base/results.h"
#include "tool/bench/cpu/bench_exchange.h"
#include "tool/bench/cpu/bench_report.h"
#include "tool/bench/gpu/bench_gpu.h"
#include "tool/bench/mpi/bench_baseline.h"
#include "tool/bench/processes/bench_processes.h"
#include "tool/ranks/job/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

class CpuMeasurer final : public Measurer {
 public:
  CpuMeasurer(bool baseline, std::string command) : baseline_(baseline), command_(std::move(command)) {
    if (baseline_) require_baseline();
  }
  Json measure(const BenchCase& bench) override {
    BenchResult result{bench, is_codec(bench.operation) ? measure_codec(bench) : measure_exchange(bench, wire_), {}};
    if (baseline_ && !is_codec(bench.operation)) {
      Progress::doing("MPI baseline" + effort_text(bench.effort));
      result.baseline = measure_baseline(bench);
    }
    results_.add(result);
    return to_json(result, command_);
  }
  std::string table() override {
    const std::vector<BenchResult> results = results_.take();
    footnote_ = footnote_of(results);
    return to_text(results);
  }
  std::string footnote() const override { return footnote_; }

 private:
  std::string footnote_;
  bool baseline_;
  std::string command_;
  std::optional<Wire> wire_;  // of the last line
  Results<BenchResult> results_;
};

class GpuMeasurer final : public Measurer {
 public:
  GpuMeasurer(const Backend& backend, int ranks, int nodes, bool baseline, std::string command)
      : nodes_(nodes),
        baseline_(baseline),
        command_(std::move(command)),
        bench_(make_gpu_bench(backend, ranks, nodes, baseline)) {}
  Json measure(const BenchCase& bench) override {
    Progress::doing((baseline_ ? "measuring the exchange and the baseline" : "measuring the exchange") +
                    effort_text(bench.effort));
    const std::optional<GpuResult> last = results_.last();
    const bool is_measured = last && differ_in_operation_only(bench, last->bench);  // operations are together
    const GpuResult result{bench, &bench_->speeds(), is_measured ? last->measured : bench_->measure(bench, baseline_),
                           nodes_};
    results_.add(result);
    return to_json(result, *bench_, command_);
  }
  std::string table() override {
    const std::vector<GpuResult> results = results_.take();
    footnote_ = footnote_of(results);
    return to_text(results, *bench_);
  }
  std::string footnote() const override { return footnote_; }

 private:
  static bool differ_in_operation_only(const BenchCase& a, const BenchCase& b) {
    return a.shape == b.shape && a.format == b.format && a.reduction == b.reduction && a.chooses == b.chooses &&
           a.message_copies == b.message_copies && a.rows == b.rows && a.results == b.results && a.routing == b.routing;
  }
  std::string footnote_;
  int nodes_;
  bool baseline_;
  std::string command_;
  std::unique_ptr<GpuBench> bench_;
  Results<GpuResult> results_;
};

// Ranks that are processes: all measure an exchange together, and only the first measures the codecs.
class ProcessMeasurer final : public Measurer {
 public:
  ProcessMeasurer(const Backend& backend, int ranks, int nodes, std::string command)
      : ranks_(backend.make(ranks, nodes)), nodes_(nodes), codecs_(false, command), command_(std::move(command)) {}
  Json measure(const BenchCase& bench) override {
    Json record;
    if (is_codec(bench.operation)) {
      in_first_process(kDefaultDeadline, [&] { record = codecs_.measure(bench); });
      return record;
    }
    Progress::doing("measuring the exchange and plain puts" + effort_text(bench.effort));
    const ProcessResult result = measure_processes(ranks_, bench, nodes_);
    results_.add(result);
    return to_json(result, command_);
  }
  std::string table() override {
    const std::string codecs = codecs_.table();
    const std::vector<ProcessResult> results = results_.take();
    footnote_ = results.empty() ? codecs_.footnote() : footnote_of(results);
    return codecs + to_text(results);
  }
  std::string footnote() const override { return footnote_; }

 private:
  std::string footnote_;
  Ranks ranks_;
  int nodes_;
  CpuMeasurer codecs_;
  std::string command_;
  Results<ProcessResult> results_;
};

}  // namespace

Measurers::Measurers(const Backend& backend, const MeasureOptions& options)
    : backend_(backend), gpus_(is_gpu_backend(backend)), options_(options) {
  if (backend.ranks == RanksAre::processes && !gpus_)
    cpu_or_processes_ = std::make_unique<ProcessMeasurer>(backend, options.ranks, options.nodes, options.command);
  else
    cpu_or_processes_ = std::make_unique<CpuMeasurer>(options.baseline && !gpus_, options.command);
}
Measurers::~Measurers() = default;

Measurer& Measurers::of(const BenchCase& bench) {
  if (!gpus_ || is_codec(bench.operation)) return *cpu_or_processes_;
  if (gpu_ == nullptr || gpu_ranks_ != bench.shape.ranks) {
    Progress::doing("measuring the wire and copies");
    gpu_.reset();  // its memory first
    gpu_ =
        std::make_unique<GpuMeasurer>(backend_, bench.shape.ranks, options_.nodes, options_.baseline, options_.command);
    gpu_ranks_ = bench.shape.ranks;
  }
  return *gpu_;
}

}  // namespace ferry::app
