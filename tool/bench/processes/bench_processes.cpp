// The measured loop of one process, and what all processes' loops come to.
#include "tool/bench/processes/bench_processes.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "exchange/sizes/sizes.h"
#include "ferry/detail/layout/result_layout.h"
#include "ferry/detail/layout/token_list.h"
#include "ferry/trace.h"
#include "tool/bench/base/bench_trace.h"
#include "tool/bench/cpu/bench_exchange.h"
#include "tool/bench/cpu/bench_rank_set.h"
#include "tool/bench/processes/put_link.h"

namespace ferry::app {
namespace {

constexpr int kPutRepetitions = 16;
constexpr int kCountedRounds = 8;

// Bytes that the interfaces of this host sent so far; -1 where the system does not say.
double bytes_sent_by_host() {
  std::ifstream file("/proc/net/dev");
  double sum = -1;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream columns(line.substr(colon + 1));
    std::vector<double> column{std::istream_iterator<double>(columns), {}};
    if (column.size() > 8) sum = std::max(sum, 0.0) + column[8];
  }
  return sum;
}

class ProcessBench {
 public:
  ProcessBench(const Ranks& ranks, const BenchCase& bench)
      : bench_(bench),
        world_(static_cast<ProcessWorld&>(ranks.world())),
        one_host_(num_ranks_of_this_host(ranks) == ranks.size()),
        exchange_(world_, bench.shape, options()) {
    const BenchBytes one = mean_bytes(bench, 1);
    const double set_bytes = one.tokens + one.rows + one.results + one.output;
    sets_.resize(static_cast<std::size_t>(input_sets_for(set_bytes)));
    const double exchange_bytes = static_cast<double>(exchange_.memory_bytes()) * bench.shape.ranks;
    require_memory(bench, static_cast<double>(sets_.size()) * set_bytes + exchange_bytes);
    for (std::size_t index = 0; index < sets_.size(); ++index)
      make_set(sets_[index], bench, exchange_.layout(), world_.rank(), static_cast<int>(index));
    first_rounds(exchange_, sets_, bench);
  }

  ProcessMeasurement run() {
    ProcessMeasurement measured;
    measured.input_sets = static_cast<int>(sets_.size());
    measured.memory_bytes = exchange_.memory_bytes();
    measured.network = count_bytes();
    const auto link = make_put_link(world_, legs_, most_bytes_of_a_put());
    for (int warm_up = 0; warm_up < kHostWarmUps; ++warm_up) put_plainly(*link);
    const double start = now_seconds();
    for (int warm_up = 0; warm_up < kHostWarmUps; ++warm_up) iterate(warm_up);
    int expected = expected_iterations(bench_.effort, kHostWarmUps, max_of_all(now_seconds() - start));
    std::vector<Span> spans, puts;
    double seconds = 0;
    for (int done = 0, next = 0; (next = next_iterations(bench_.effort, done, seconds)) > 0;) {
      double mine = 0;
      for (const int end = done + next; done < end; ++done) {
        if (done % std::max(expected / kPutRepetitions, 1) == 0) puts.push_back(put_plainly(*link));
        const double begin = now_seconds();
        spans.push_back(iterate(done));
        mine += now_seconds() - begin;
      }
      seconds += max_of_all(mine);
      expected = expected_iterations(bench_.effort, done, seconds);
    }
    measured.samples.seconds = of_all(spans);
    measured.plain_put.seconds = of_all(puts);
    if (bench_.trace != nullptr) trace_rounds();
    return measured;
  }

 private:
  ExchangeOptions options() const {
    ExchangeOptions options = exchange_options(bench_);
    options.workers = bench_.workers;
    return options;
  }

  void operate(RankSet& set, bool dispatch, bool combine) {
    if (dispatch) exchange_.dispatch(set.dispatch_in, set.dispatch_out);
    if (combine) exchange_.combine(set.combine_in, set.combine_out);
  }
  RankSet& set_of(int iteration) { return sets_[static_cast<std::size_t>(iteration) % sets_.size()]; }

  Span iterate(int iteration) {
    RankSet& set = set_of(iteration);
    if (bench_.operation == BenchOperation::combine) operate(set, true, false);
    world_.barrier();
    const double begin = now_seconds();
    operate(set, bench_.operation != BenchOperation::combine, bench_.operation != BenchOperation::dispatch);
    return {begin, now_seconds()};
  }

  // A few more rounds.
  void trace_rounds() {
    Trace trace;
    for (int round = 0; round < BenchTrace::kRounds; ++round) iterate(round);
    trace.stop();
    bench_.trace->add_of_all(world_, trace.events());
  }

  Span put_plainly(PutLink& link) {
    world_.barrier();
    const double begin = now_seconds();
    link.exchange();
    return {begin, now_seconds()};
  }

  // Rounds without a pause between them: what they send by the formula of docs/protocol.md, to whom, and what the
  // host's interfaces sent meanwhile.
  NetworkBytes count_bytes() {
    const Stats before = exchange_.stats();
    world_.barrier();
    const double counted_before = bytes_sent_by_host();
    const bool dispatch = bench_.operation != BenchOperation::combine;
    for (int round = 0; round < kCountedRounds; ++round)
      operate(set_of(round), true, bench_.operation != BenchOperation::dispatch);
    world_.barrier();
    const double counted = bytes_sent_by_host() - counted_before;
    const Stats after = exchange_.stats();
    std::vector<Sent> sent(static_cast<std::size_t>(world_.size()));
    double through_network = 0;
    for (int peer = 0; peer < world_.size(); ++peer) {
      if (peer == world_.rank()) continue;
      Sent& to = sent[static_cast<std::size_t>(peer)];
      to = sent_to(peer, before, after);
      if (!world_.is_direct(peer)) through_network += to.dispatch + to.combine;
    }
    make_legs(sent);
    NetworkBytes network;
    network.formula = sum_of_all(through_network);
    if (one_host_ && dispatch && counted_before >= 0) network.counted = counted / kCountedRounds;
    return network;
  }

  struct Sent {
    double dispatch = 0;
    double combine = 0;
  };

  // The bytes of one round: messages, routing and results as the exchange counts them, and eight bytes for each signal.
  // There is one signal with each message and each result, one for the routing and one for the end of the round.
  Sent sent_to(int peer, const Stats& before, const Stats& after) const {
    const auto at = static_cast<std::size_t>(peer);
    const auto of_one = [](std::uint64_t first, std::uint64_t last) {
      return static_cast<double>(last - first) / kCountedRounds;
    };
    const Shape& shape = bench_.shape;
    const double messages = of_one(before.messages_sent[at], after.messages_sent[at]);
    const auto message = static_cast<double>(message_bytes(bench_.format, shape.hidden));
    double routing = 8.0 * shape.max_tokens * shape.top_k + 64 + 4.0 * num_local_experts(shape, peer);
    if (bench_.rows == RowOrder::by_source) routing += 8.0 * static_cast<double>(token_list_words(shape.max_tokens));
    if (bench_.replays) routing = 0;
    const auto result = static_cast<double>(result_layout(bench_.results, shape.hidden).bytes);
    const double results =
        (of_one(before.bytes_sent[at], after.bytes_sent[at]) - messages * message - routing) / result;
    Sent sent;
    if (bench_.operation != BenchOperation::combine) sent.dispatch = messages * (message + 8) + routing + 8;
    if (bench_.operation != BenchOperation::dispatch) sent.combine = results * (result + 8);
    (bench_.operation == BenchOperation::dispatch ? sent.dispatch : sent.combine) += 8;
    return sent;
  }

  // The plain put's: results are sent when the rows have come, so each way is a leg.
  void make_legs(const std::vector<Sent>& sent) {
    PutLeg dispatch, combine;
    for (const Sent& each : sent) {
      dispatch.bytes_to.push_back(static_cast<std::size_t>(each.dispatch));
      combine.bytes_to.push_back(static_cast<std::size_t>(each.combine));
    }
    dispatch.same_for_all = true;
    if (bench_.operation != BenchOperation::combine) legs_.push_back(dispatch);
    if (bench_.operation != BenchOperation::dispatch) legs_.push_back(combine);
  }
  std::size_t most_bytes_of_a_put() {
    std::size_t most = 1;
    for (const PutLeg& leg : legs_) most = std::max(most, *std::max_element(leg.bytes_to.begin(), leg.bytes_to.end()));
    return static_cast<std::size_t>(max_of_all(static_cast<double>(most)));
  }

  std::vector<double> gathered(std::span<const double> mine) {
    std::vector<double> all(mine.size() * static_cast<std::size_t>(world_.size()));
    world_.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
    return all;
  }
  double max_of_all(double mine) {
    const std::vector<double> all = gathered(std::span(&mine, 1));
    return *std::max_element(all.begin(), all.end());
  }
  double sum_of_all(double mine) {
    double sum = 0;
    for (const double each : gathered(std::span(&mine, 1))) sum += each;
    return sum;
  }

  // From the first rank's begin to the last one's end, where all ranks share a clock; else the longest.
  std::vector<double> of_all(const std::vector<Span>& mine) {
    std::vector<double> flat;
    for (const Span& span : mine)
      flat.insert(flat.end(), {one_host_ ? span.begin : 0, span.end - (one_host_ ? 0 : span.begin)});
    const std::vector<double> all = gathered(flat);
    std::vector<double> seconds;
    for (std::size_t index = 0; index < flat.size(); index += 2) {
      double begin = std::numeric_limits<double>::max();
      double end = 0;
      for (std::size_t at = index; at < all.size(); at += flat.size()) {
        begin = std::min(begin, all[at]);
        end = std::max(end, all[at + 1]);
      }
      seconds.push_back(end - begin);
    }
    return seconds;
  }

  const BenchCase& bench_;
  ProcessWorld& world_;
  bool one_host_;
  Exchange exchange_;
  std::vector<RankSet> sets_;
  std::vector<PutLeg> legs_;  // of one iteration, by the formula
};

}  // namespace

ProcessResult measure_processes(const Ranks& ranks, const BenchCase& bench, int nodes) {
  ProcessResult result;
  result.bench = bench;
  result.backend = ranks.backend();
  result.nodes = nodes;
  const auto& world = static_cast<const ProcessWorld&>(ranks.world());
  for (int peer = 1; peer < world.size(); ++peer) result.direct_peers += world.is_direct(peer) ? 1 : 0;
  result.measured = ProcessBench(ranks, bench).run();
  return result;
}

}  // namespace ferry::app
