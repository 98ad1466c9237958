// The measured loop of an exchange, one thread per rank.
#include "tool/bench/cpu/bench_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "ferry/trace.h"
#include "tool/bench/base/bench_machine.h"
#include "tool/bench/base/bench_routing.h"
#include "tool/bench/base/bench_trace.h"
#include "tool/bench/cpu/bench_rank_set.h"
#include "tool/text/progress.h"

namespace ferry::app {
namespace {

constexpr int kWireRepetitions = 16;
// Between two rounds. The bound takes the shortest of all: one that other work disturbs says nothing of the machine.
constexpr int kMeetings = 16;

// What the ranks' threads share. Each writes only its own elements.
struct Shared {
  const BenchCase& bench;
  const Wire& wire;
  StartLine line;
  std::vector<std::vector<RankSet>> sets;     // [rank][set]
  std::vector<std::vector<Span>> spans;       // [rank][iteration]
  std::vector<std::vector<Span>> wire_spans;  // [rank][repetition]
  std::vector<std::vector<Span>> meetings;    // [rank][repetition and meeting]
  std::vector<double> seconds;                // [rank]: what longest() compares
  std::vector<Stats> first_stats;             // [rank]: after the first rounds, whose dispatches are no replays
  std::vector<Stats> stats;                   // [rank]: after the rounds that are measured
  std::size_t memory_bytes = 0;
  std::optional<Trace> trace;  // while rounds are recorded
};

// One iteration on one rank: the time of what is measured. None: another rank failed.
std::optional<Span> iterate(Shared& shared, Exchange& exchange, RankSet& set) {
  const BenchOperation operation = shared.bench.operation;
  if (operation == BenchOperation::combine) exchange.dispatch(set.dispatch_in, set.dispatch_out);
  if (!shared.line.wait()) return std::nullopt;
  const double begin = now_seconds();
  if (operation != BenchOperation::combine) exchange.dispatch(set.dispatch_in, set.dispatch_out);
  if (operation != BenchOperation::dispatch) exchange.combine(set.combine_in, set.combine_out);
  return Span{begin, now_seconds()};
}

// Between the iterations, so that a disturbance of the machine meets the wire and the exchange alike.
bool measure_wire(Shared& shared, std::size_t rank) {
  if (!shared.line.wait()) return false;
  const double begin = now_seconds();
  shared.wire.copy(static_cast<int>(rank));
  shared.wire_spans[rank].push_back({begin, now_seconds()});
  if (!shared.line.wait()) return false;
  for (int meeting = 0; meeting < kMeetings; ++meeting) {
    const double met = now_seconds();
    if (!shared.line.wait()) return false;
    shared.meetings[rank].push_back({met, now_seconds()});
  }
  return true;
}

// The longest of what the ranks give; all get it.
std::optional<double> longest(Shared& shared, std::size_t rank, double mine) {
  shared.seconds[rank] = mine;
  if (!shared.line.wait()) return std::nullopt;
  const double most = *std::max_element(shared.seconds.begin(), shared.seconds.end());
  if (!shared.line.wait()) return std::nullopt;  // all have read them
  return most;
}

// Rounds `done` to `done + count`, with the wire between them; how long they took, without the wire.
std::optional<double> measure_some(Shared& shared, Exchange& exchange, std::size_t rank, int done, int count,
                                   int between_wire) {
  std::vector<RankSet>& sets = shared.sets[rank];
  double seconds = 0;
  for (int iteration = done; iteration < done + count; ++iteration) {
    if (iteration % between_wire == 0 && !measure_wire(shared, rank)) return std::nullopt;
    const double start = now_seconds();
    const auto span = iterate(shared, exchange, sets[static_cast<std::size_t>(iteration) % sets.size()]);
    if (!span) return std::nullopt;
    shared.spans[rank].push_back(*span);
    seconds += now_seconds() - start;
  }
  return longest(shared, rank, seconds);
}

// False: another rank failed.
bool measure_rounds(Shared& shared, Exchange& exchange, std::size_t rank) {
  const BenchEffort& effort = shared.bench.effort;
  std::vector<RankSet>& sets = shared.sets[rank];
  const double start = now_seconds();
  for (int warm_up = 0; warm_up < kHostWarmUps; ++warm_up)
    if (!iterate(shared, exchange, sets[static_cast<std::size_t>(warm_up) % sets.size()])) return false;
  const auto warm_up_seconds = longest(shared, rank, now_seconds() - start);
  if (!warm_up_seconds) return false;
  if (rank == 0) Progress::doing("measuring the exchange, and the wire between its rounds" + effort_text(effort));
  int expected = expected_iterations(effort, kHostWarmUps, *warm_up_seconds);
  double seconds = 0;
  for (int done = 0, next = 0; (next = next_iterations(effort, done, seconds)) > 0;) {
    const auto more = measure_some(shared, exchange, rank, done, next, std::max(expected / kWireRepetitions, 1));
    if (!more) return false;
    seconds += *more;
    done += next;
    expected = expected_iterations(effort, done, seconds);
  }
  return true;
}

// A few more rounds. Nobody is in another call while recording begins and ends.
bool trace_rounds(Shared& shared, Exchange& exchange, std::size_t rank) {
  std::vector<RankSet>& sets = shared.sets[rank];
  if (!shared.line.wait()) return false;
  if (rank == 0) shared.trace.emplace();
  if (!shared.line.wait()) return false;
  for (int round = 0; round < BenchTrace::kRounds; ++round)
    if (!iterate(shared, exchange, sets[static_cast<std::size_t>(round) % sets.size()])) return false;
  if (!shared.line.wait()) return false;
  if (rank != 0) return true;
  shared.bench.trace->add(shared.trace->events());
  shared.trace.reset();
  return true;
}

void run_rank(Shared& shared, World& world) {
  const BenchCase& bench = shared.bench;
  const auto rank = static_cast<std::size_t>(world.rank());
  ExchangeOptions options = exchange_options(bench);
  options.workers = bench.workers;
  Exchange exchange(world, bench.shape, options);
  std::vector<RankSet>& sets = shared.sets[rank];
  if (rank == 0) Progress::doing(fmt::format("making {} input sets, and their first rounds", sets.size()));
  for (std::size_t index = 0; index < sets.size(); ++index)
    make_set(sets[index], bench, exchange.layout(), world.rank(), static_cast<int>(index));
  first_rounds(exchange, sets, bench);
  shared.first_stats[rank] = exchange.stats();
  if (rank == 0) shared.memory_bytes = exchange.memory_bytes();

  if (!measure_rounds(shared, exchange, rank)) return;
  shared.stats[rank] = exchange.stats();
  if (bench.trace != nullptr) trace_rounds(shared, exchange, rank);
}

void add_sent(BenchMeasurement& measured, const Shared& shared) {
  for (std::size_t rank = 0; rank < shared.stats.size(); ++rank) {
    const Stats& first = shared.first_stats[rank];
    const Stats& last = shared.stats[rank];
    const auto rounds = static_cast<double>(last.dispatches - first.dispatches);
    for (std::size_t peer = 0; peer < shared.stats.size(); ++peer) {
      if (peer == rank) continue;
      measured.messages_sent += static_cast<double>(last.messages_sent[peer] - first.messages_sent[peer]) / rounds;
      measured.bytes_sent += static_cast<double>(last.bytes_sent[peer] - first.bytes_sent[peer]) / rounds;
    }
  }
}

}  // namespace

double shortest_meeting(const std::vector<std::vector<Span>>& meetings) {
  return BenchSamples{seconds_of(meetings)}.at(0);
}

BenchMeasurement measure_exchange(const BenchCase& bench, std::optional<Wire>& wire) {
  require_valid(bench.shape);
  const auto ranks = static_cast<std::size_t>(bench.shape.ranks);
  const BenchBytes one = mean_bytes(bench, 1);
  const double set_bytes = one.tokens + one.rows + one.results + one.output;
  const int sets = input_sets_for(set_bytes);
  const auto exchange_bytes =
      static_cast<double>(memory_use(bench.shape, exchange_options(bench)).total) * bench.shape.ranks;
  if (wire && !wire->is_of(bench.shape.ranks, bench.workers)) wire.reset();  // its memory, before the next one's
  const std::size_t wire_bytes = wire ? 0 : Wire::memory_bytes(bench.shape.ranks, bench.workers);
  require_memory(bench, sets * set_bytes + exchange_bytes + static_cast<double>(wire_bytes));

  if (!wire) {
    Progress::doing("measuring the wire");
    wire.emplace(bench.shape.ranks, bench.workers);
  }
  Shared shared{bench, *wire, StartLine(bench.shape.ranks), {}, {}, {}, {}, {}, {}, {}, 0, {}};
  shared.sets.resize(ranks);
  for (auto& of_rank : shared.sets) of_rank.resize(static_cast<std::size_t>(sets));
  shared.spans.resize(ranks);
  shared.wire_spans.resize(ranks);
  shared.meetings.resize(ranks);
  shared.seconds.resize(ranks);
  shared.first_stats.resize(ranks);
  shared.stats.resize(ranks);
  run_ranks(bench.shape.ranks, [&](World& world) {
    try {
      run_rank(shared, world);
    } catch (...) {
      shared.line.break_line();
      throw;
    }
  });

  BenchMeasurement measured;
  measured.samples.seconds = seconds_of(shared.spans);
  measured.wire = shared.wire.speed(seconds_of(shared.wire_spans));
  measured.meeting_seconds = shortest_meeting(shared.meetings);
  measured.bytes = mean_bytes(bench, sets);
  if (bench.operation != BenchOperation::dispatch) add_sent(measured, shared);  // each has its combine
  measured.input_sets = sets;
  measured.set_bytes = sets * set_bytes;
  measured.memory_bytes = shared.memory_bytes;
  return measured;
}

}  // namespace ferry::app
