// Waiter: how threads of a block wait for words of this rank's memory, and what a thread does when its wait fails.
// `Reach` has what differs between direct and remote ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/wait.h"
#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/other_handles.cuh"
#include "ferry/detail/cuda/fabric/pace_clock.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

// Reads the clock and the abort words only now and then. Where many threads wait, it backs off after the first few
// polls: polling loads contend with incoming stores.
class DevicePacer {
 public:
  __device__ explicit DevicePacer(const PeerLinks& links) : clock_(links.deadline_ns), backs_off_(links.backs_off) {}
  __device__ Pace pause() {
    const bool looks = clock_.is_time_to_look();
    if (backs_off_ && clock_.turns() > kTurnsAwake) __nanosleep(kBackOffNs);
    if (!looks) return Pace::again;
    return clock_.has_expired(ptx::global_nanoseconds()) ? Pace::expired : Pace::look_for_abort;
  }
  __device__ std::uint64_t waited_ns() const {
    return clock_.has_looked() ? clock_.waited_ns(ptx::global_nanoseconds()) : 0;
  }

 private:
  static constexpr std::uint32_t kTurnsAwake = 3;
  static constexpr unsigned kBackOffNs = 64;
  PaceClock clock_;
  bool backs_off_;
};

// A word of either scope that a thread waits for, so that the wait is one text for both.
class WatchedWord {
 public:
  __device__ explicit WatchedWord(const SignalWord& word) : of_ranks_(&word) {}
  __device__ explicit WatchedWord(const DeviceWord<Epoch>& word) : of_blocks_(&word) {}
  __device__ bool has_reached(Epoch target) const {
    return of_ranks_ != nullptr ? ferry::has_reached(*of_ranks_, target) : ferry::has_reached(*of_blocks_, target);
  }
  __device__ Epoch seen() const { return of_ranks_ != nullptr ? load_relaxed(*of_ranks_) : load_relaxed(*of_blocks_); }

 private:
  const SignalWord* of_ranks_ = nullptr;
  const DeviceWord<Epoch>* of_blocks_ = nullptr;
};

template <RankReach Reach>
class Waiter {
 public:
  __device__ explicit Waiter(const PeerLinks& links) : links_(links) {}

  // One thread waits. The other threads of its sync unit (a team, or a warp) get its answer.
  template <class G>
  __device__ bool wait_at_least(const G& g, std::size_t word, Epoch target, const WaitSite& site) const {
    if (word == arrived_) return true;
    const SyncedTeam& unit = unit_of(g);
    return unit.all(unit.thread() != 0 || wait_by_one(word, target, site));
  }
  // Threads share the words: one each, or several if there are more words than threads.
  template <class G, class WordOf, class SiteOf>
  __device__ bool wait_for_each(const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                                const std::uint8_t* skipped) const {
    const SyncedTeam& unit = unit_of(g);
    bool ok = true;
    for (int i = unit.thread(); i < count && ok; i += unit.size())
      ok = (skipped != nullptr && skipped[i] != 0) || wait_by_one(word(i), target, site(i));
    return unit.all(ok);
  }
  template <class G, class WordOf>
  __device__ bool are_there(const G& g, int count, const WordOf& word, Epoch target) const {
    const SyncedTeam& unit = unit_of(g);
    bool there = true;
    for (int i = unit.thread(); i < count; i += unit.size())
      there = there && load_relaxed(signal_at(word(i))) >= target;
    return unit.all(there);
  }
  template <class G>
  __device__ bool await_entries(const G& g, const Plan& plan, Epoch routing, Epoch epoch, const TokenAt& at,
                                int num_tokens);

  // I19: for one thread that found the tag of another round in the word. `routed` is the `routed` word of the source,
  // for the record. Many threads may wait for one source; `notes_time` says whether this one adds its time to the
  // statistics.
  __device__ TaggedValue wait_for_tag(std::size_t word, Epoch epoch, std::size_t routed, const WaitSite& site,
                                      bool notes_time) const {
    const auto& watched = *reinterpret_cast<const SystemWord<std::uint32_t>*>(links_.own + word);
    return wait_for_tag_in(links_, watched, epoch, signal_at(routed), site, notes_time);
  }
  // I23: for one thread. How many tokens of the source come, by the first word of its list of this routing. What the
  // list says of each is visible after it.
  __device__ TaggedValue wait_for_list(const Plan& plan, Epoch routing, int source) const {
    const std::size_t at = plan.map.token_list(routing, source);
    const SignalWord& first = signal_at(at);
    const auto is_there = [&] { return is_list_of(load_acquire(first), routing); };
    const auto seen = [&] { return Epoch{high_of(load_relaxed(first))}; };
    const WaitSite site{Operation::dispatch, Phase::routing, source, -1};
    if (!is_there() && !wait_and_record(true, links_, is_there, seen, routing, site)) return {};
    const std::uint64_t word = load_relaxed(first);
    Reach(links_).see_puts_of(source, at, word);
    return {true, low_of(word)};
  }
  // I19: for counts that other blocks of this rank store with their epoch.
  template <class There, class Seen>
  __device__ bool wait_for_counts(const There& there, const Seen& seen, Epoch epoch) const {
    return wait_and_record(threadIdx.x % 32 == 0, links_, there, seen, epoch, own_site());
  }
  // For a counter that other blocks of this rank raise.
  __device__ bool wait_for_block(const DeviceWord<Epoch>& word, Epoch target) const {
    return wait(links_, word, target, own_site());
  }
  // I2: for a part of this rank's own table.
  __device__ bool wait_for_own_part(const Plan& plan, int part, Epoch epoch) const {
    return wait(links_, signal_at(plan.map.routed(links_.rank, part)), epoch, own_site());
  }

  // I10: of the threads of this rank that find something wrong, the first ends the exchange.
  __device__ static bool is_first_to_end(const PeerLinks& links) {
    return fetch_add_acq_rel(links.state->failed, 1u) == 0;
  }
  // I10: the last words of the thread that ends the exchange: `word` at every rank and in this rank's memory. The
  // record has been written. From now on the host reads it, and follows these words to the rank that is missing.
  __device__ static void end_exchange(const PeerLinks& links, Epoch word) {
    const Reach reach(links);
#pragma unroll 1
    for (int peer = 0; peer < links.size; ++peer)
      if (!links.is_masked(peer)) reach.signal(peer, links.own_abort_word(), word);
    store_release(links.record->failed, 1u);
  }
  // I22: the same for a thread that looks for another handle. False: nobody gave one.
  __device__ static bool end_for_other_handle(const PeerLinks& links, const OtherHandle& other) {
    if (other.was_given() && is_first_to_end(links)) end_exchange(links, record_other_handle(links, other));
    return other.was_given();
  }

 private:
  static constexpr std::size_t kNoWord = ~std::size_t{0};
  static_assert(HeapMap::kMostTableParts <= 32, "waited_parts_ has a bit for each");

  // The threads that wait as one (sync unit).
  __device__ static const SyncedTeam& unit_of(const SyncedTeam& g) { return g; }
  __device__ static SyncedTeam unit_of(const WarpwiseTeam& g) { return g.warp(); }
  __device__ const SignalWord& signal_at(std::size_t word) const {
    return *reinterpret_cast<const SignalWord*>(links_.own + word);
  }
  __device__ WaitSite own_site() const { return {Operation::dispatch, Phase::routing, links_.rank, -1}; }

  // For one thread. site.peer sets the word.
  __device__ bool wait_by_one(std::size_t word, Epoch target, const WaitSite& site) const {
    const bool ok = wait(links_, signal_at(word), target, site);
    if (ok) Reach(links_).see_puts_of(site.peer, word, target);
    return ok;
  }
  // These are static functions: taking the address of the object would move it from registers to memory.
  template <Scope S>
  __device__ static bool wait(const PeerLinks& links, const Shared<Epoch, S>& watched, Epoch target,
                              const WaitSite& site) {
    return has_reached(watched, target) || wait_longer(links, WatchedWord(watched), target, site);
  }
  // I21. Not inlined: small rounds are bound by the instruction cache, so the text of the steps stays dense.
  __device__ __noinline__ static bool wait_longer(const PeerLinks& links, WatchedWord watched, Epoch target,
                                                  WaitSite site);
  __device__ __noinline__ static TaggedValue wait_for_tag_in(const PeerLinks& links,
                                                             const SystemWord<std::uint32_t>& watched, Epoch epoch,
                                                             const SignalWord& routed, WaitSite site, bool notes_time);
  template <class There, class Seen>
  __device__ static bool wait_and_record(bool notes_time, const PeerLinks& links, const There& there, const Seen& seen,
                                         Epoch epoch, const WaitSite& site);
  __device__ static void note_time(const PeerLinks& links, const WaitSite& site, const DevicePacer& pacer) {
    const std::uint64_t passed = pacer.waited_ns();
    if (passed != 0) fetch_add_relaxed(links.waited_ns[site.peer], passed);
  }
  __device__ static const SignalWord& abort_of(const PeerLinks& links, int peer) {
    return reinterpret_cast<const SignalWord*>(links.own + links.abort_words)[peer];
  }
  __device__ static bool has_abort(const PeerLinks& links, const WaitSite& site, Epoch wanted) {
    if (load_relaxed(links.state->failed) != 0) return true;
    if (!links.is_masked(site.peer) && never_comes(load_relaxed(abort_of(links, site.peer)), site.phase, wanted))
      return true;
    return !first_abort(links.size, [&links](int peer) {
              return links.is_masked(peer) ? Epoch{0} : load_relaxed(abort_of(links, peer));
            }).nobody();
  }
  // What the first thread calls: both write the record, and return the abort word.
  __device__ static Epoch record_other_handle(const PeerLinks& links, const OtherHandle& other);
  __device__ static Epoch record_failed_wait(const PeerLinks& links, Waited waited, const WaitSite& site, Epoch seen,
                                             Epoch wanted);

  const PeerLinks& links_;
  std::uint32_t waited_parts_ = 0;  // parts that have arrived, of the table of the source whose number is this lane
  std::size_t arrived_ = kNoWord;   // a word that has arrived: the next wait for it ends at once
};

// I2: a warp waits for the part of a source's table that has this token's entries; the source has `num_tokens`.
// Meanwhile a second lane polls whether the message has arrived (I5). That poll acquires nothing that a remote source
// put, so a wait must follow. A warp waits only once for each part of the first 32 sources.
template <RankReach Reach>
template <class G>
__device__ bool Waiter<Reach>::await_entries(const G& g, const Plan& plan, Epoch routing, Epoch epoch,
                                             const TokenAt& at, int num_tokens) {
  const int source = at.source;
  const int token = at.token;
  const int part = links_.table_parts.part_of(token, num_tokens);
  const std::size_t arrived = plan.map.arrived(epoch, source, token);
  const std::size_t routed = plan.map.routed(source, part);
  const int lane = unit_of(g).thread();
  const bool is_direct = Reach(links_).is_direct(source);
  bool waits = !is_direct;
  if constexpr (Reach::kHasRemoteRanks)
    waits =
        waits && (source >= SyncedTeam::kWidth || (__shfl_sync(kAllLanes, waited_parts_, source) >> part & 1u) == 0);
  bool there = lane > 1;
  if (!there) there = has_reached(signal_at(lane == 0 ? routed : arrived), lane == 0 ? routing : epoch);
  const bool message = __shfl_sync(kAllLanes, there, 1) && is_direct;
  arrived_ = message ? arrived : kNoWord;
  if (lane == 0 && (!there || waits))
    there = wait_by_one(routed, routing, {Operation::dispatch, Phase::routing, source, token});
  if (Reach::kHasRemoteRanks && lane == source) waited_parts_ |= 1u << part;
  return unit_of(g).all(lane != 0 || there);
}

template <RankReach Reach>
__device__ bool Waiter<Reach>::wait_longer(const PeerLinks& links, WatchedWord watched, Epoch target, WaitSite site) {
  DevicePacer pacer(links);
  OtherHandle other;
  const auto aborted = [&] {
    if (has_abort(links, site, target)) return true;
    other = find_other_handle(links);  // in these waits alone: only results can be missing because of one
    return other.was_given();
  };
  const Waited waited = wait_until([&] { return watched.has_reached(target); }, aborted, pacer);
  note_time(links, site, pacer);
  if (waited == Waited::arrived) return true;
  if (is_first_to_end(links))
    end_exchange(links, other.was_given() ? record_other_handle(links, other)
                                          : record_failed_wait(links, waited, site, watched.seen(), target));
  return false;
}

template <RankReach Reach>
__device__ TaggedValue Waiter<Reach>::wait_for_tag_in(const PeerLinks& links, const SystemWord<std::uint32_t>& watched,
                                                      Epoch epoch, const SignalWord& routed, WaitSite site,
                                                      bool notes_time) {
  std::uint32_t word = 0;
  const bool arrived = wait_and_record(
      notes_time, links, [&] { return links.tag.is_of(word = load_relaxed(watched), epoch); },
      [&] { return load_relaxed(routed); }, epoch, site);
  return arrived ? TaggedValue{true, links.tag.value(word)} : TaggedValue{};
}

// Waits until there(). If the wait fails, the record names seen() as the newest round.
template <RankReach Reach>
template <class There, class Seen>
__device__ bool Waiter<Reach>::wait_and_record(bool notes_time, const PeerLinks& links, const There& there,
                                               const Seen& seen, Epoch epoch, const WaitSite& site) {
  DevicePacer pacer(links);
  const Waited waited = wait_until(
      there, [&] { return has_abort(links, site, epoch); }, pacer);
  if (notes_time) note_time(links, site, pacer);
  if (waited == Waited::arrived) return true;
  if (is_first_to_end(links)) end_exchange(links, record_failed_wait(links, waited, site, seen(), epoch));
  return false;
}

template <RankReach Reach>
__device__ Epoch Waiter<Reach>::record_other_handle(const PeerLinks& links, const OtherHandle& other) {
  links.record->wait = {.operation = other.operation,
                        .phase = Phase::handle,
                        .my_rank = links.rank,
                        .missing_rank = other.rank,
                        .reported_by = links.rank,
                        .epoch_seen = kSeenAnotherHandle,
                        .epoch_wanted = other.bits()};
  return abort_word(other.bits(), false, other.rank) | kOtherRouting;
}

template <RankReach Reach>
__device__ Epoch Waiter<Reach>::record_failed_wait(const PeerLinks& links, Waited waited, const WaitSite& site,
                                                   Epoch seen, Epoch wanted) {
  const int aborting = waited == Waited::aborted ? links.size : 0;
  WaitRecord record = failed_wait(site, links.rank, aborting, seen, wanted, [&links](int peer) {
    return links.is_masked(peer) ? Epoch{0} : load_acquire(abort_of(links, peer));
  });
  record.block = static_cast<std::int32_t>(blockIdx.x);
  links.record->wait = record;
  return abort_word(wanted, record.reported_by != links.rank, site.peer);
}

}  // namespace ferry::cuda
