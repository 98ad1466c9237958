// Ranking: how many earlier entries of this source name the same expert, without an atomic reservation. The table is
// cut into parts, a block each, which stores its entries to every rank. In a block, each expert has a bit for every
// token of a chunk; the bits below a token's are the entries before it. Bits are set in any order and counted when all
// are. Where the bits of all tokens fit, every block sets them all; else a block sets those of its part and learns from
// the others what comes before it. The same table as protocol/dispatch.h's rank_entries. Bad ids (out of range, or
// twice in a token) count as -1.
#pragma once

#include <cstdint>

#include "cuda/kernel_params.h"
#include "cuda/team_group.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/dispatch.h"

namespace ferry::cuda {

// One of a round; the counter of the next one is cleared meanwhile (round_clock.cuh).
__device__ inline void report_bad_id(const RankingArgs& ranking, Epoch epoch, int token, int k, std::int64_t id) {
  if (fetch_add_relaxed(ranking.state->bad_ids[epoch & 1], 1u) != 0) return;
  ranking.record->bad_token = token;
  ranking.record->bad_k = k;
  ranking.record->bad_id = id;
}

// What a block keeps in shared memory: [words][experts] bits, [experts] entries before the chunk, [experts] of the part
// or, later, of all, and whether an id comes twice in some token of the chunk.
struct RankingMemory {
  BlockWord<std::uint32_t>* bits;
  std::uint32_t* before;
  std::uint32_t* total;
  BlockWord<std::uint32_t>* twins;

  __device__ RankingMemory(std::byte* memory, int words, int experts)
      : bits(reinterpret_cast<BlockWord<std::uint32_t>*>(memory)),
        before(reinterpret_cast<std::uint32_t*>(bits + words * experts)),
        total(before + experts),
        twins(reinterpret_cast<BlockWord<std::uint32_t>*>(total + experts)) {}
};

// Tokens, or entries, [first, end).
struct IndexRange {
  int first;
  int end;
};

// An entry: its token, its place there, and the expert that the protocol counts; -1 for none.
struct RankedEntry {
  int token;
  int k;
  int expert = -1;
  bool dropped = false;
};

// One block's work on its part.
class Ranker {
 public:
  __device__ Ranker(const TeamGroup& g, const Plan& plan, const DispatchArgs& in, int num_experts,
                    const RankingArgs& ranking, const Epoch& epoch, int part, int parts, std::byte* memory)
      : g_(g),
        plan_(plan),
        in_(in),
        num_experts_(num_experts),
        ranking_(ranking),
        epoch_(epoch),
        part_(part),
        parts_(parts),
        mine_{parts == 1 ? 0 : part * ranking.part_tokens,
              parts == 1 ? in.num_tokens : min(in.num_tokens, (part + 1) * ranking.part_tokens)},
        counts_all_(in.num_tokens <= 32 * ranking.words),
        counted_(counts_all_ ? IndexRange{0, in.num_tokens} : mine_),
        memory_(memory, ranking.words, plan.shape.experts) {
    masked_ = g.thread() < plan.shape.ranks && plan.masked[g.thread()] != 0;
    const IndexRange to_count = run_of(chunk_at(counted_.first));
    const IndexRange to_store = run_of(counts_all_ ? mine_ : chunk_at(counted_.first));
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int counted = to_count.first + 32 * j + lane();
      const int stored = to_store.first + 32 * j + lane();
      first_ids_[j] = counted < to_count.end ? id_at(counted) : kNone;
      first_weights_[j] = stored < to_store.end ? in.weights.given(0, stored) : 0.0f;
    }
  }

  // By one thread, once all parts are counted: tells the host.
  __device__ void report_bad_ids() const;
  // Counts this part.
  __device__ void count();
  // What comes before this part, and in all, from the other blocks. False: a block did not come.
  template <class F>
  __device__ bool learn_from_other_parts(F& fabric);
  // Entries to every rank; from the first part also header and counts. I2: then the part's word.
  template <Fabric F>
  __device__ void publish(F& fabric, std::uint64_t* bytes_sent);

 private:
  static constexpr int kHeld = 2;  // entries of a thread that are asked for before the round begins
  static constexpr int kNone = -1;
  static constexpr int kBad = -2;  // an id out of range

  __device__ int lane() const { return g_.thread() % 32; }
  __device__ int id_at(int index) const {
    const std::int64_t id = in_.ids.at(index);
    return id < kNone || id >= num_experts_ ? kBad : static_cast<int>(id);
  }
  // Of the tokens that this block counts, those whose bits are in shared memory together.
  __device__ IndexRange chunk_at(int first) const { return {first, min(counted_.end, first + 32 * ranking_.words)}; }
  __device__ IndexRange run_of(const IndexRange& tokens) const;
  template <class Visit>
  __device__ void for_each_entry(const IndexRange& tokens, const Visit& visit) const;
  __device__ RankedEntry entry_of(int index, int id) const;
  __device__ bool is_twin(const RankedEntry& entry, int id) const;
  __device__ void mark(const IndexRange& chunk, bool reports);
  __device__ std::uint32_t count_of(int expert, int words) const;
  template <class F>
  __device__ void store_tokens(F& fabric, int chunk_first, const IndexRange& tokens) const;
  template <class F>
  __device__ void store_entries(F& fabric);
  template <class F>
  __device__ void store_counts(F& fabric);

  const TeamGroup& g_;
  const Plan& plan_;
  const DispatchArgs& in_;
  int num_experts_;
  const RankingArgs& ranking_;
  const Epoch& epoch_;  // not known yet when the first ids are asked for
  int part_;
  int parts_;
  IndexRange mine_;     // the part
  bool counts_all_;     // in one chunk
  IndexRange counted_;  // by this block
  RankingMemory memory_;
  bool masked_;  // at first, whether this thread's rank is; then whether any is
  int first_ids_[kHeld];
  float first_weights_[kHeld];
};

// This warp's share of the entries of `tokens`: a run, a whole number of times 32.
__device__ inline IndexRange Ranker::run_of(const IndexRange& tokens) const {
  const int top_k = plan_.shape.top_k;
  const int warps = g_.size() / 32;
  const int each = ((tokens.end - tokens.first) * top_k + 32 * warps - 1) / (32 * warps) * 32;
  const int begin = tokens.first * top_k + g_.thread() / 32 * each;
  return {begin, min(begin + each, tokens.end * top_k)};
}

// visit(index, j) for the j-th entry of this thread; j is a constant below kHeld, and kHeld for all that follow.
template <class Visit>
__device__ void Ranker::for_each_entry(const IndexRange& tokens, const Visit& visit) const {
  const IndexRange run = run_of(tokens);
  int index = run.first + lane();
#pragma unroll
  for (int j = 0; j < kHeld; ++j, index += 32)
    if (index < run.end) visit(index, j);
  for (; index < run.end; index += 32) visit(index, kHeld);
}

// I3: the expert of an entry. An id that comes twice in a token is found out later (is_twin).
__device__ inline RankedEntry Ranker::entry_of(int index, int id) const {
  RankedEntry entry{index / plan_.shape.top_k, 0};
  entry.k = index - entry.token * plan_.shape.top_k;
  entry.expert = masked_ ? routed_expert(plan_, id, &entry.dropped) : unmasked_expert(plan_, id);
  return entry;
}

// Whether the token named the same expert before. Asked only in a chunk where some token did.
__device__ inline bool Ranker::is_twin(const RankedEntry& entry, int id) const {
  if (load_relaxed(*memory_.twins) == 0) return false;
  for (int k = 0; k < entry.k; ++k)
    if (id_at(entry.token * plan_.shape.top_k + k) == id) return true;
  return false;
}

// Sets the bits of a chunk, and tells of bad and dropped entries where it `reports`. Ends with a barrier.
__device__ inline void Ranker::mark(const IndexRange& chunk, bool reports) {
  const int experts = plan_.shape.experts;
  const int words = (chunk.end - chunk.first + 31) / 32;
  g_.sync();
  for (int i = g_.thread(); i < words * experts; i += g_.size()) memory_.bits[i].raw = 0;
  if (g_.thread() == 0) memory_.twins->raw = 0;
  g_.sync();
  std::uint64_t num_dropped = 0;
  const bool held = chunk.first == counted_.first;
  for_each_entry(chunk, [&](int index, int j) {
    const int id = held && j < kHeld ? first_ids_[j] : id_at(index);
    const RankedEntry entry = entry_of(index, id);
    num_dropped += entry.dropped ? 1 : 0;
    if (id == kBad && reports) report_bad_id(ranking_, epoch_, entry.token, entry.k, in_.ids.at(index));
    if (entry.expert < 0) return;
    const int place = entry.token - chunk.first;
    const std::uint32_t bit = 1u << place % 32;
    if ((fetch_or_relaxed(memory_.bits[place / 32 * experts + entry.expert], bit) & bit) != 0)
      fetch_or_relaxed(*memory_.twins, 1u);
  });
  if (num_dropped != 0 && reports) fetch_add_relaxed(ranking_.state->dropped, num_dropped);
  g_.sync();
  if (!reports || load_relaxed(*memory_.twins) == 0) return;
  for_each_entry(chunk, [&](int index, int) {
    const int id = id_at(index);
    const RankedEntry entry = entry_of(index, id);
    if (entry.expert >= 0 && is_twin(entry, id)) report_bad_id(ranking_, epoch_, entry.token, entry.k, id);
  });
}

// Of the chunk whose bits are set in `words` words.
__device__ inline std::uint32_t Ranker::count_of(int expert, int words) const {
  std::uint32_t count = 0;
#pragma unroll 8
  for (int word = 0; word < words; ++word)
    count += static_cast<std::uint32_t>(__popc(memory_.bits[word * plan_.shape.experts + expert].raw));
  return count;
}

__device__ inline void Ranker::count() {
  const int experts = plan_.shape.experts;
  for (int expert = g_.thread(); expert < experts; expert += g_.size())
    memory_.before[expert] = memory_.total[expert] = 0;
  masked_ = g_.any(masked_);
  for (int first = counted_.first; first < counted_.end; first += 32 * ranking_.words) {
    const IndexRange chunk = chunk_at(first);
    mark(chunk, !counts_all_ || part_ == 0);
    for (int expert = g_.thread(); expert < experts; expert += g_.size())
      memory_.total[expert] += count_of(expert, (chunk.end - chunk.first + 31) / 32);
  }
  if (parts_ > 1 && !counts_all_)
    for (int expert = g_.thread(); expert < experts; expert += g_.size())
      ranking_.part_counts[part_ * experts + expert] = memory_.total[expert];
  g_.sync();
}

template <class F>
__device__ bool Ranker::learn_from_other_parts(F& fabric) {
  if (parts_ == 1 || counts_all_) return true;
  bool ok = true;
  if (g_.thread() == 0) store_release(ranking_.part_done[part_], epoch_);
  if (g_.thread() < parts_) ok = fabric.wait_for_block(ranking_.part_done[g_.thread()], epoch_, Phase::routing);
  if (!g_.all(ok)) return false;
  const int experts = plan_.shape.experts;
  for (int expert = g_.thread(); expert < experts; expert += g_.size()) {
    std::uint32_t before = 0;
    std::uint32_t total = 0;
    for (int part = 0; part < parts_; ++part) {
      const std::uint32_t count = ranking_.part_counts[part * experts + expert];
      before += part < part_ ? count : 0;
      total += count;
    }
    memory_.before[expert] = before;
    memory_.total[expert] = total;
  }
  g_.sync();
  return true;
}

__device__ inline void Ranker::report_bad_ids() const {
  const std::uint32_t bad = load_relaxed(ranking_.state->bad_ids[epoch_ & 1]);
  if (bad == 0) return;
  ranking_.record->num_bad = bad;
  store_release(ranking_.record->has_bad_id, 1u);
}

// Tokens of the chunk that begins at `chunk_first`, whose bits are set.
template <class F>
__device__ void Ranker::store_tokens(F& fabric, int chunk_first, const IndexRange& tokens) const {
  const int experts = plan_.shape.experts;
  const std::size_t table = plan_.map.table(epoch_, plan_.rank);
  const bool held = tokens.first == mine_.first;
  for_each_entry(tokens, [&](int index, int j) {
    const int id = id_at(index);
    const RankedEntry entry = entry_of(index, id);
    RoutingEntry routed{0, 0.0f};
    if (entry.expert >= 0 && !is_twin(entry, id)) {
      const int place = entry.token - chunk_first;
      const BlockWord<std::uint32_t>* bits = memory_.bits + entry.expert;
      std::uint32_t rank = memory_.before[entry.expert];
      for (int word = 0; word < place / 32; ++word)
        rank += static_cast<std::uint32_t>(__popc(bits[word * experts].raw));
      rank += static_cast<std::uint32_t>(__popc(bits[place / 32 * experts].raw & ((1u << place % 32) - 1u)));
      routed = {plan_.code.pack(entry.expert, rank),
                held && j < kHeld ? first_weights_[j] : in_.weights.given(0, index)};
      if constexpr (requires { fabric.hooked_weight(0, 0); })
        if (!plan_.exact) routed.weight = fabric.hooked_weight(entry.token, entry.k);
    }
    const std::size_t at = table + static_cast<std::size_t>(index) * sizeof(RoutingEntry);
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (!masked_ || plan_.masked[peer] == 0) fabric.store(peer, at, routed);
  });
}

template <class F>
__device__ void Ranker::store_entries(F& fabric) {
  if (counted_.end - counted_.first <= 32 * ranking_.words) return store_tokens(fabric, counted_.first, mine_);
  for (int first = counted_.first; first < counted_.end; first += 32 * ranking_.words) {
    const IndexRange chunk = chunk_at(first);
    mark(chunk, false);
    store_tokens(fabric, chunk.first, chunk);
    g_.sync();
    for (int expert = g_.thread(); expert < plan_.shape.experts; expert += g_.size())
      memory_.before[expert] += count_of(expert, (chunk.end - chunk.first + 31) / 32);
  }
}

template <class F>
__device__ void Ranker::store_counts(F& fabric) {
  const std::size_t counts = plan_.map.counts(epoch_, plan_.rank);
  for (int expert = g_.thread(); expert < plan_.shape.experts; expert += g_.size()) {
    const int owner = owner_of(plan_.shape, expert);
    const auto local = static_cast<std::size_t>(expert - plan_.experts_of(owner).first);
    if (plan_.masked[owner] == 0) fabric.store(owner, counts + local * sizeof(std::uint32_t), memory_.total[expert]);
  }
  for (int peer = g_.thread(); peer < plan_.shape.ranks; peer += g_.size())
    if (plan_.masked[peer] == 0)
      fabric.store(peer, plan_.map.header(epoch_, plan_.rank), static_cast<std::uint32_t>(in_.num_tokens));
}

template <Fabric F>
__device__ void Ranker::publish(F& fabric, std::uint64_t* bytes_sent) {
  if (part_ == 0) store_counts(fabric);
  store_entries(fabric);
  g_.sync();  // a fabric may put entries of other warps along with a warp's own
  // A block that ranks the whole table says so for every part that others may wait for.
  const int words = parts_ > 1 ? 1 : max(1, (in_.num_tokens + ranking_.part_tokens - 1) / ranking_.part_tokens);
  for (int i = 0; i < words; ++i)
    signal_each_after_puts(fabric, g_, plan_.shape.ranks, plan_.map.routed(plan_.rank, part_ + i), epoch_,
                           plan_.masked);
  if (part_ != 0) return;
  if (g_.thread() == 0) report_bad_ids();
  for (int peer = g_.thread(); peer < plan_.shape.ranks; peer += g_.size())
    if (peer != plan_.rank && plan_.masked[peer] == 0)
      bytes_sent[peer] += static_cast<std::size_t>(in_.num_tokens) * plan_.shape.top_k * sizeof(RoutingEntry) +
                          sizeof(RoutingHeader) +
                          static_cast<std::size_t>(plan_.experts_of(peer).count) * sizeof(std::uint32_t);
}

}  // namespace ferry::cuda
