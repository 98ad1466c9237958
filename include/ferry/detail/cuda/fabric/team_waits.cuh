// TeamWaits: how teams and warpwise teams wait, from how one thread of a fabric does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/device_waits.cuh"
#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/fabric.h"
#include "ferry/detail/protocol/round.h"

namespace ferry::cuda {

// Self has local(offset), links(), wait_alone(word, target, site) and is_direct(peer): whether a look at a word that
// the peer signals shows what came before it.
template <class Self, class Signal>
class TeamWaits {
 public:
  template <class G>
  __device__ bool wait_at_least(const G& g, std::size_t word, Epoch target, const WaitSite& site) {
    if (word == arrived_) return true;
    const SyncedTeam& team = sync_unit(g);
    return team.all(team.thread() != 0 || self().wait_alone(word, target, site));
  }
  // I19: by one thread that looked, and found another round's; the others learn the answer by a barrier of their own.
  // `told` is the source's `routed`.
  __device__ TaggedValue wait_for_tag(std::size_t word, Epoch epoch, std::size_t told, const WaitSite& site,
                                      bool notes_time) const {
    const auto& watched = *reinterpret_cast<const SystemWord<std::uint32_t>*>(self().local(word));
    const auto& routed = *reinterpret_cast<const SignalWord*>(self().local(told));
    return DeviceWaits<Signal>::wait_for_tag(self().links(), watched, epoch, routed, site, notes_time);
  }
  // Each thread waits for one; more than there are threads come in turns.
  template <class G, class WordOf, class SiteOf>
  __device__ bool wait_for_each(const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                                const std::uint8_t* skipped) {
    const SyncedTeam& team = sync_unit(g);
    bool ok = true;
    for (int i = team.thread(); i < count && ok; i += team.size())
      ok = (skipped != nullptr && skipped[i] != 0) || self().wait_alone(word(i), target, site(i));
    return team.all(ok);
  }
  // Whether waiting for each would end at once. Waits for nothing, and shows nothing of what came before the words.
  template <class G, class WordOf>
  __device__ bool are_there(const G& g, int count, const WordOf& word, Epoch target) const {
    const SyncedTeam& team = sync_unit(g);
    bool there = true;
    for (int i = team.thread(); i < count; i += team.size())
      there = there && load_relaxed(*reinterpret_cast<const SignalWord*>(self().local(word(i)))) >= target;
    return team.all(there);
  }
  // I2: by a warp, for the part of a source's table, of `num_tokens`, that has this token's entries. A second lane
  // looks meanwhile whether the message is there (I5). A look does not show what a far source put, which has to be
  // waited for, of the first 32 sources once for each part.
  template <class G>
  __device__ bool await_entries(const G& g, const Plan& plan, Epoch epoch, const TokenAt& at, int num_tokens) {
    const int source = at.source;
    const int token = at.token;
    const int part = self().links().table_parts.part_of(token, num_tokens);
    const std::size_t arrived = plan.map.arrived(epoch, source, token);
    const std::size_t routed = plan.map.routed(source, part);
    const int lane = sync_unit(g).thread();
    bool waits = !self().is_direct(source);
    if constexpr (Self::kHasRemoteRanks)
      waits =
          waits && (source >= SyncedTeam::kWidth || (__shfl_sync(kAllLanes, waited_parts_, source) >> part & 1u) == 0);
    bool there = lane > 1;
    if (!there)
      there = load_acquire(*reinterpret_cast<const SignalWord*>(self().local(lane == 0 ? routed : arrived))) >= epoch;
    const bool message = __shfl_sync(kAllLanes, there, 1) && self().is_direct(source);
    arrived_ = message ? arrived : kNoWord;
    if (lane == 0 && (!there || waits))
      there = self().wait_alone(routed, epoch, {Operation::dispatch, Phase::routing, source, token});
    if (Self::kHasRemoteRanks && lane == source) waited_parts_ |= 1u << part;
    return sync_unit(g).all(lane != 0 || there);
  }

 private:
  static constexpr std::size_t kNoWord = ~std::size_t{0};
  static_assert(HeapMap::kMostTableParts <= 32, "waited_parts_ has a bit for each");
  std::uint32_t waited_parts_ = 0;  // of the table of the source that has the lane's number
  std::size_t arrived_ = kNoWord;   // a word that a warp has seen arrive, and need not ask for again

  __device__ Self& self() { return static_cast<Self&>(*this); }
  __device__ const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace ferry::cuda
