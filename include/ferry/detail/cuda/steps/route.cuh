// Builds the routing table: the position of each entry within its expert, that is how many earlier entries of this
// source name the same expert. No position is reserved by an atomic.
//   - The table is cut into parts. A block has one or several neighbouring parts, and stores their entries to every
//     rank.
//   - In shared memory each expert has a bit for every token of a chunk. The position of a token is the number of bits
//     below its own. Bits are set in any order, and counted after a barrier.
//   - If tokens are few and the bits of all fit, every block sets all of them. Otherwise a block sets the bits of its
//     share and learns from the other blocks what comes before it.
//   - If every block sets all bits, one more block may do so and send the counts, which receivers need first.
// The table is the same as that of cpu::route_entries. Bad ids (out of range, or twice in a token) count as -1.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/f32_weights.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/steps/routing/route_share.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// One block's work on its share. Small rounds are bound by the instruction cache, so loops stay rolled. In every phase
// a thread has the same experts, and entries that are as far apart as the block has threads.
class RoutingBuilder {
 public:
  // `epoch` may still be unknown (mark_first). `memory`: of the block (RoutingMemory).
  __device__ RoutingBuilder(const SyncedTeam& g, const DispatchParams& p, const Epoch& epoch, const RoutingShare& share,
                            std::byte* memory)
      : g_(g),
        plan_(p.plan),
        in_(p.in),
        num_experts_(p.num_experts),
        routing_(p.routing),
        epoch_(epoch),
        share_(share),
        mine_(tokens_of(share, in_.num_tokens)),
        counted_(routing_.counts_all ? IndexRange{0, in_.num_tokens} : mine_),
        memory_(memory, routing_.words, plan_.shape.experts) {}

  // Clears shared memory, before earlier kernels have ended. A barrier must follow.
  __device__ void prepare();
  // Sets the bits of the first chunk, before the epoch is known. A barrier must follow.
  __device__ void mark_first();
  // Counts the entries of this share.
  __device__ void count();
  // Learns from the other blocks the counts before this share, and of all shares. False: a block did not come.
  template <class F>
  __device__ bool learn_from_others(F& fabric);
  // Sends counts, header and entries to every rank. I2: the words of its parts follow.
  template <DeviceFabric F>
  __device__ void publish(F& fabric, const PeerCounter<typename F::Reach>& bytes_sent);
  __device__ const RoutingMemory& memory() const { return memory_; }

 private:
  static constexpr int kNone = -1;
  static constexpr int kBad = -2;                  // an id out of range
  static constexpr std::uint32_t kDuplicates = 1;  // some token names an expert twice
  static constexpr std::uint32_t kBadIds = 2;      // some id is out of range

  __device__ int id_at(int index) const { return checked(in_.ids.at(index)); }
  __device__ int checked(std::int64_t id) const {
    return id < kNone || id >= num_experts_ ? kBad : static_cast<int>(id);
  }
  // A chunk: tokens that this block counts and whose bits are in shared memory at the same time.
  __device__ IndexRange chunk_at(int first) const { return {first, min(counted_.end, first + 32 * routing_.words)}; }
  __device__ static int words_of(const IndexRange& chunk) { return (chunk.end - chunk.first + 31) / 32; }
  template <class Visit>
  __device__ void for_each_expert(const Visit& visit) const {
#pragma unroll 1
    for (int expert = g_.thread(); expert < plan_.shape.experts; expert += g_.size()) visit(expert);
  }
  __device__ DeviceWord<Epoch>& count_of(int block, int expert) const {
    return routing_.block_counts[block * plan_.shape.experts + expert];
  }
  __device__ void prefetch_to_more() const;
  __device__ void clear_bits(const IndexRange& chunk);
  __device__ void clear_used_bits(const IndexRange& chunk);
  __device__ bool is_duplicate(int index, int id) const;
  __device__ void mark(const IndexRange& chunk);
  __device__ void mark_entry(const IndexRange& chunk, int index, int id);
  __device__ void report(const IndexRange& chunk) const;
  __device__ std::uint32_t count_below(int expert, int end_word) const;
  __device__ std::uint32_t position_in_expert(int expert, int bit_at) const;
  template <class F>
  __device__ void store_tokens(F& fabric, int chunk_first, const IndexRange& tokens) const;
  template <class F>
  __device__ void store_entries(F& fabric);
  // I19
  template <class F>
  __device__ void store_counts(F& fabric, const PeerCounter<typename F::Reach>& bytes_sent);

  const SyncedTeam& g_;
  const Plan& plan_;
  const DispatchArgs& in_;
  int num_experts_;
  const RoutingArgs& routing_;
  const Epoch& epoch_;  // not known yet when the first entries are loaded
  const RoutingShare& share_;
  IndexRange mine_;     // the share
  IndexRange counted_;  // the entries that this block counts: all of them in one chunk, or its share
  RoutingMemory memory_;
  std::int64_t first_id_ = kNone;  // the first entry that this thread counts
  float first_weight_ = 0.0f;      // of its first entry of the share
  std::uint64_t num_dropped_ = 0;  // of this thread's entries
};

__device__ inline void RoutingBuilder::prepare() {
  for_each_expert([this](int expert) { memory_.before[expert].raw = memory_.total[expert].raw = 0; });
  clear_bits(chunk_at(counted_.first));
}

__device__ inline void RoutingBuilder::mark_first() {
  const int top_k = plan_.shape.top_k;
  const int counted = counted_.first * top_k + g_.thread();
  const int stored = mine_.first * top_k + g_.thread();
  if (counted < counted_.end * top_k) first_id_ = in_.ids.at(counted);  // checked after it has arrived
  if (stored < mine_.end * top_k) first_weight_ = given_weight(in_.weights, stored);
  prefetch_to_more();
  mark(chunk_at(counted_.first));
}

// Prefetches into the L1 cache what later turns read.
__device__ inline void RoutingBuilder::prefetch_to_more() const {
  constexpr int kLine = 128;
  const int top_k = plan_.shape.top_k;
  const std::byte* ids = in_.ids.address(counted_.first * top_k + g_.size());
  const std::byte* end = in_.ids.address(counted_.end * top_k);
#pragma unroll 1
  for (ids += g_.thread() * kLine; ids < end; ids += g_.size() * kLine) ptx::prefetch_to_l1(ids);
  if (in_.weights.data == nullptr || in_.weights.dtype != DType::f32) return;
#pragma unroll 1
  for (int index = mine_.first * top_k + g_.size() + g_.thread() * (kLine / 4); index < mine_.end * top_k;
       index += g_.size() * (kLine / 4))
    ptx::prefetch_to_l1(reinterpret_cast<const std::byte*>(in_.weights.data + index));
}

__device__ inline void RoutingBuilder::clear_bits(const IndexRange& chunk) {
  const int words = words_of(chunk) * plan_.shape.experts;
#pragma unroll 1
  for (int i = g_.thread(); i < words; i += g_.size()) memory_.bits[i].raw = 0;
  if (g_.thread() == 0) memory_.wrong->raw = 0;
}

// Must stand between two barriers: other threads have read the bits, and will set them next.
__device__ inline void RoutingBuilder::clear_used_bits(const IndexRange& chunk) {
  g_.sync();
  clear_bits(chunk);
  g_.sync();
}

// Whether the token named the same expert before. Called only for a chunk in which some token did.
__device__ inline bool RoutingBuilder::is_duplicate(int index, int id) const {
  const int first = plan_.by_top_k.quotient(index) * plan_.shape.top_k;
#pragma unroll 1
  for (int before = first; before < index; ++before)
    if (id_at(before) == id) return true;
  return false;
}

// I3: sets the bit of an entry. Duplicate ids are found later (is_duplicate).
__device__ inline void RoutingBuilder::mark_entry(const IndexRange& chunk, int index, int id) {
  const int token = plan_.by_top_k.quotient(index);
  if (id == kBad) fetch_or_relaxed(*memory_.wrong, kBadIds);
  bool dropped = false;
  const int expert = routed_expert(plan_, id, &dropped);
  num_dropped_ += dropped ? 1 : 0;
  if (expert < 0) return;
  const int bit_at = token - chunk.first;
  const std::uint32_t bit = 1u << bit_at % 32;
  if ((fetch_or_relaxed(memory_.bits[bit_at / 32 * plan_.shape.experts + expert], bit) & bit) != 0)
    fetch_or_relaxed(*memory_.wrong, kDuplicates);
}

// Sets the bits of a chunk. They are clear before; a barrier must follow.
__device__ inline void RoutingBuilder::mark(const IndexRange& chunk) {
  const int end = chunk.end * plan_.shape.top_k;
  const int begin = chunk.first * plan_.shape.top_k + g_.thread();
  int id = chunk.first == counted_.first ? checked(first_id_) : begin < end ? id_at(begin) : kNone;
  int ahead = begin + g_.size() < end ? id_at(begin + g_.size()) : kNone;
#pragma unroll 1
  for (int index = begin; index < end; index += g_.size()) {
    const int next = index + 2 * g_.size();
    const int after = next < end ? id_at(next) : kNone;
    if (id != kNone) mark_entry(chunk, index, id);
    id = ahead;
    ahead = after;
  }
}

// Records the bad ids of the chunk.
__device__ inline void RoutingBuilder::report(const IndexRange& chunk) const {
  const int top_k = plan_.shape.top_k;
#pragma unroll 1
  for (int index = chunk.first * top_k + g_.thread(); index < chunk.end * top_k; index += g_.size()) {
    const int id = id_at(index);
    if (id != kBad && (routed_expert(plan_, id) < 0 || !is_duplicate(index, id))) continue;
    const int token = plan_.by_top_k.quotient(index);
    report_bad_id(routing_, epoch_, token, index - token * top_k, in_.ids.at(index));
  }
}

// How many entries of the first words of the chunk name the expert.
__device__ inline std::uint32_t RoutingBuilder::count_below(int expert, int end_word) const {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int word = 0; word < end_word; ++word)
    count += static_cast<std::uint32_t>(__popc(memory_.bits[word * plan_.shape.experts + expert].raw));
  return count;
}
__device__ inline std::uint32_t RoutingBuilder::position_in_expert(int expert, int bit_at) const {
  const std::uint32_t bits = memory_.bits[bit_at / 32 * plan_.shape.experts + expert].raw;
  return memory_.before[expert].raw + count_below(expert, bit_at / 32) +
         static_cast<std::uint32_t>(__popc(bits & ((1u << bit_at % 32) - 1u)));
}

__device__ inline void RoutingBuilder::count() {
  // The block that records a bad id signals after it. So the thread that reports to the host has seen the record (I2).
  const bool reports = !routing_.counts_all || share_.block == 0;
  const bool adds_up = !routing_.counts_all || share_.stores_counts;
#pragma unroll 1
  for (int first = counted_.first; first < counted_.end; first += 32 * routing_.words) {
    const IndexRange chunk = chunk_at(first);
    if (first != counted_.first) {
      clear_used_bits(chunk);
      mark(chunk);
      g_.sync();
    }
    if (reports && memory_.wrong->raw != 0) report(chunk);
    if (adds_up)
      for_each_expert([&](int expert) { memory_.total[expert].raw += count_below(expert, words_of(chunk)); });
  }
  if (num_dropped_ != 0 && reports && !routing_.is_replay) fetch_add_relaxed(routing_.state->dropped, num_dropped_);
}

// I19. A thread loads one expert's counts of some of the blocks.
template <class F>
__device__ bool RoutingBuilder::learn_from_others(F& fabric) {
  if (share_.blocks == 1 || routing_.counts_all) return true;
  const RoundTag& tag = fabric.links().tag;
  const int experts = plan_.shape.experts;
  for_each_expert([&](int expert) {
    store_relaxed(count_of(share_.block, expert), tag.mark_whole(memory_.total[expert].raw, epoch_));
    memory_.total[expert].raw = 0;
  });
  g_.sync();
  bool ok = true;
  int expert = g_.thread();
#pragma unroll 1
  for (int first = 0; first < share_.blocks && ok;) {
    if (expert >= experts) {
      expert -= experts;
      first += kBlocksAtOnce;
      continue;
    }
    const BlockCounts counts = await_counts<typename F::Waits>(fabric.links(), &count_of(first, expert), experts,
                                                               share_.blocks - first, share_.block - first, epoch_);
    fetch_add_relaxed(memory_.before[expert], counts.before);
    fetch_add_relaxed(memory_.total[expert], counts.total);
    ok = counts.are_there;
    expert += g_.size();
  }
  return g_.all(ok);
}

// Publishes the tokens of the chunk at `chunk_first`, whose bits are set.
template <class F>
__device__ void RoutingBuilder::store_tokens(F& fabric, int chunk_first, const IndexRange& tokens) const {
  const int end = tokens.end * plan_.shape.top_k;
  const std::size_t table = plan_.map.table(epoch_, plan_.rank);
  const bool duplicates = (memory_.wrong->raw & kDuplicates) != 0;
  int index = tokens.first * plan_.shape.top_k + g_.thread();
  if (index >= end) return;
  int id = id_at(index);
  float weight = tokens.first == mine_.first ? first_weight_ : given_weight(in_.weights, index);
#pragma unroll 1
  while (true) {
    const int next = index + g_.size();
    const int next_id = next < end ? id_at(next) : kNone;
    const float next_weight = next < end ? given_weight(in_.weights, next) : 0.0f;
    const int expert = routed_expert(plan_, id);
    RoutingEntry routed{0, 0.0f};
    if (expert >= 0 && !(duplicates && is_duplicate(index, id))) {
      const int token = plan_.by_top_k.quotient(index);
      routed = {plan_.code.pack(expert, position_in_expert(expert, token - chunk_first)), weight};
      if constexpr (F::Hooks::kHasRouterWeight)
        if (!plan_.exact)
          routed.weight = fabric.hooks().router_weight(in_.weights, token, index - token * plan_.shape.top_k);
    }
#pragma unroll 1
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (!plan_.is_masked(peer))
        fabric.store(peer, table + static_cast<std::size_t>(index) * sizeof(RoutingEntry), routed);
    if (next >= end) return;
    index = next;
    id = next_id;
    weight = next_weight;
  }
}

template <class F>
__device__ void RoutingBuilder::store_entries(F& fabric) {
  const int at_once = 32 * routing_.words;
  const bool one_chunk = counted_.end - counted_.first <= at_once;  // its bits are set; this block stores its share
#pragma unroll 1
  for (int first = counted_.first; first < counted_.end; first += at_once) {
    const IndexRange chunk = chunk_at(first);
    if (!one_chunk) {
      clear_used_bits(chunk);
      mark(chunk);
      g_.sync();
    }
    // By its ends: the choice between two ranges would take their addresses, and this object out of registers.
    store_tokens(fabric, first, {one_chunk ? mine_.first : chunk.first, one_chunk ? mine_.end : chunk.end});
    if (one_chunk) return;
    g_.sync();
    for_each_expert([&](int expert) { memory_.before[expert].raw += count_below(expert, words_of(chunk)); });
  }
}

template <class F>
__device__ void RoutingBuilder::store_counts(F& fabric, const PeerCounter<typename F::Reach>& bytes_sent) {
  const RoundTag& tag = fabric.links().tag;
  const std::size_t counts = plan_.map.counts(epoch_, plan_.rank);
  for_each_expert([&](int expert) {
    const int owner = plan_.owner_of(expert);
    const auto local = static_cast<std::size_t>(expert - plan_.experts_of(owner).first);
    if (!plan_.is_masked(owner))
      fabric.store_word(owner, counts + local * sizeof(std::uint32_t), tag.mark(memory_.total[expert].raw, epoch_));
  });
  const std::uint32_t num_tokens = tag.mark(static_cast<std::uint32_t>(in_.num_tokens) + routing_.excess, epoch_);
  for (int peer = g_.thread(); peer < plan_.shape.ranks; peer += g_.size())
    if (!plan_.is_masked(peer)) fabric.store_word(peer, plan_.map.header(epoch_, plan_.rank), num_tokens);
  for (int peer = g_.thread(); peer < plan_.shape.ranks; peer += g_.size())
    if (peer != plan_.rank && !plan_.is_masked(peer))
      bytes_sent.add(peer, static_cast<std::size_t>(in_.num_tokens) * plan_.shape.top_k * sizeof(RoutingEntry) +
                               sizeof(RoutingHeader) +
                               static_cast<std::size_t>(plan_.experts_of(peer).count) * sizeof(std::uint32_t));
}

template <DeviceFabric F>
__device__ void RoutingBuilder::publish(F& fabric, const PeerCounter<typename F::Reach>& bytes_sent) {
  if (share_.stores_counts) store_counts(fabric, bytes_sent);
  if (!share_.stores_entries()) return;
  store_entries(fabric);
  g_.sync();  // a fabric may put entries of several warps together
  fabric.signal_each_after_puts(g_, plan_.shape.ranks, plan_.map.routed(plan_.rank, share_.first_part), epoch_,
                                plan_.masked, share_.parts);
}

}  // namespace ferry::cuda
