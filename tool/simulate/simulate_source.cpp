// The counting fabric, and the phases of a round over it.
#include "tool/simulate/simulate_source.h"

#include "cpu/steps/combine_receive.h"
#include "cpu/steps/combine_send.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "cpu/steps/route.h"
#include "exchange/checks/valid_options.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/protocol/contracts/row_ops.h"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::app {
namespace {

constexpr Epoch kEpoch = kFirstEpoch;

// Pieces of one rank's symmetric memory that the phases read and write; the rest is never touched.
struct LocalMemory {
  const HeapMap& map;
  int rank;
  std::vector<RoutingEntry>& table;
  std::vector<std::uint32_t>& sent_counts;
  RoutingHeader header{};
};

HeapMap::Region region_of(const HeapMap& map, std::size_t offset) {
  int region = 0;
  while (region + 1 < HeapMap::kRegions && offset >= map.begin(static_cast<HeapMap::Region>(region + 1))) ++region;
  return static_cast<HeapMap::Region>(region);
}

// Where traffic is added up: by peer, or all in one place.
struct Sink {
  PairTraffic* first;
  bool by_peer;
};

// A Fabric that counts. No peer has a pointer, so every byte comes by as a put; what would be a store is counted alike.
class CountingCalls : public SerialFabricDefaults {
 public:
  // `local` may be null where the phases only send.
  CountingCalls(const Plan& plan, int rank, Sink sink, LocalMemory* local)
      : plan_(plan), rank_(rank), sink_(sink), local_(local) {}

  int rank() const { return rank_; }
  int size() const { return plan_.shape.ranks; }
  std::byte* peer_pointer(int, std::size_t) const { return nullptr; }
  std::byte* local(std::size_t offset) const {
    if (offset == local_->map.table(kEpoch, local_->rank)) return reinterpret_cast<std::byte*>(local_->table.data());
    if (offset == local_->map.header(kEpoch, local_->rank)) return reinterpret_cast<std::byte*>(&local_->header);
    const std::size_t counts = local_->map.sent_counts(kEpoch);
    const bool is_count = region_of(local_->map, offset) == HeapMap::kSentCounts;
    return reinterpret_cast<std::byte*>(local_->sent_counts.data()) + (is_count ? offset - counts : 0);
  }

  void put(const SerialGroup&, int peer, std::size_t offset, const void*, std::size_t bytes) {
    add(peer, offset, bytes);
    ++to(peer).operations;
  }
  void put_then_signal(const SerialGroup&, int peer, const SignalledPut& p) {
    add(peer, p.offset, p.bytes);
    ++to(peer).operations;
    ++to(peer).signals;
  }
  void signal_after_puts(const SerialGroup& g, int peer, std::size_t word, Epoch value) {
    signal_without_order(g, peer, word, value);
  }
  void signal_without_order(const SerialGroup&, int peer, std::size_t, Epoch) {
    ++to(peer).operations;
    ++to(peer).signals;
  }
  bool wait_at_least(const SerialGroup&, std::size_t, Epoch, const WaitSite&) { return true; }

 private:
  PairTraffic& to(int peer) { return sink_.first[sink_.by_peer ? peer : 0]; }

  void add(int peer, std::size_t offset, std::size_t bytes) {
    PairTraffic& traffic = to(peer);
    switch (region_of(plan_.map, offset)) {
      case HeapMap::kTables:
      case HeapMap::kHeaders:
        traffic.table_bytes += bytes;
        break;
      case HeapMap::kCounts:
        traffic.count_bytes += bytes;
        break;
      default:  // message and result slots
        ++traffic.messages;
        traffic.message_bytes += bytes;
    }
  }

  const Plan& plan_;
  int rank_;
  Sink sink_;
  LocalMemory* local_;
};
using CountingFabric = OneByOne<CountingCalls>;
static_assert(SerialFabric<CountingFabric>);

// In place of a message: only its size counts.
struct NoMessage {
  template <SendStep S>
  int make(const S&, const DispatchArgs&, int, std::byte*) const {
    return 0;
  }
};

using CountingStep = Step<CountingFabric, SerialGroup, cpu::SerialLookup, PortableOps>;
static_assert(MessageMaker<NoMessage, CountingStep>);
CountingStep step_of(const Plan& plan, CountingFabric& fabric, const SerialGroup& g) {
  return {plan, fabric, g, kEpoch, kEpoch};
}

}  // namespace

SourceRound::SourceRound(const Shape& shape, const ExchangeOptions& options, Reduction combine) {
  require_valid(shape, options);
  plan_.set_shape(shape);
  plan_.map = make_heap_map(shape, options, 0, false);
  plan_.code = {id_bits(shape.experts)};
  plan_.exact = combine == Reduction::exact;
  masked_.resize(static_cast<std::size_t>(shape.ranks));
  plan_.masked = masked_.data();
  table_.resize(static_cast<std::size_t>(shape.max_tokens) * static_cast<std::size_t>(shape.top_k));
  sent_counts_.resize(static_cast<std::size_t>(shape.experts));
  message_.resize(plan_.map.message_bytes());
}

DispatchArgs SourceRound::args() const {
  DispatchArgs args;
  args.num_tokens = num_tokens_;
  args.ids = {routing_->ids.data(), false};
  return args;
}

void SourceRound::route(int source, const Routing& routing) {
  routing_ = &routing;
  num_tokens_ = static_cast<int>(routing.ids.size()) / plan_.shape.top_k;
  plan_.rank = source;
  LocalMemory local{plan_.map, source, table_, sent_counts_};
  CountingFabric fabric(plan_, source, {nullptr, false}, &local);
  cpu::route_entries(plan_, fabric, args(), kEpoch);
}

void SourceRound::count(SourceTraffic& traffic) {
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  traffic.dispatched.assign(ranks, {});
  traffic.returned.assign(ranks, {});
  traffic.closed.assign(ranks, {});
  const SerialGroup g;
  LocalMemory local{plan_.map, plan_.rank, table_, sent_counts_};
  CountingFabric source(plan_, plan_.rank, {traffic.dispatched.data(), true}, &local);
  std::vector<std::uint64_t> counters(3 * ranks);
  cpu::publish_routing(plan_, source, g, args(), kEpoch, counters.data());
  SendCounts counted{0, counters.data() + ranks, counters.data() + 2 * ranks};
  TokenScratch scratch;
  send_tokens(step_of(plan_, source, g), NoMessage{}, args(), FixedShare{0, 1}, message_.data(), scratch, counted);

  for (int token = 0; token < num_tokens_; ++token) {
    cpu::SerialLookup{}.results(g, plan_, entries_of(token), false, scratch.results, scratch.named);
    for (int i = 0; i < scratch.results.count; ++i) {
      const int expert_rank = scratch.results.rank[i];
      CountingFabric sender(plan_, expert_rank, {&traffic.returned[static_cast<std::size_t>(expert_rank)], false},
                            nullptr);
      cpu::deliver_result(step_of(plan_, sender, g), {plan_.rank, token}, scratch.results.index[i], message_.data(),
                          {counters.data()});
    }
  }
  CountingFabric last(plan_, plan_.rank, {traffic.closed.data(), true}, nullptr);
  cpu::post_summed(plan_, last, g, kEpoch);
}

const RoutingEntry* SourceRound::entries_of(int token) const {
  return table_.data() + static_cast<std::ptrdiff_t>(token) * plan_.shape.top_k;
}

NamedRanks SourceRound::named(int token) const {
  NamedRanks named;
  cpu::list_named_ranks(plan_, entries_of(token), named);
  return named;
}

std::uint64_t SourceRound::entries(int rank) const {
  const ExpertRange experts = plan_.experts_of(rank);
  std::uint64_t entries = 0;
  for (int expert = experts.first; expert < experts.first + experts.count; ++expert)
    entries += sent_counts_[static_cast<std::size_t>(expert)];
  return entries;
}

}  // namespace ferry::app
