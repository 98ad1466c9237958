// TeamWaits: how teams and loose teams wait, from how one thread of a fabric does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device_state.h"
#include "cuda/team_group.cuh"
#include "protocol/fabric.h"
#include "protocol/round.h"

namespace ferry::cuda {

// Self has local(offset), links() and wait_alone(word, target, site).
template <class Self>
class TeamWaits {
 public:
  template <class G>
  __device__ bool wait_at_least(const G& g, std::size_t word, Epoch target, const WaitSite& site) {
    const TeamGroup& team = sharers(g);
    return team.all(team.thread() != 0 || self().wait_alone(word, target, site));
  }
  // Each thread waits for one; more than there are threads come in turns.
  template <class G, class WordOf, class SiteOf>
  __device__ bool wait_for_each(const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                                const std::uint8_t* skipped) {
    const TeamGroup& team = sharers(g);
    bool ok = true;
    for (int i = team.thread(); i < count && ok; i += team.size())
      ok = (skipped != nullptr && skipped[i] != 0) || self().wait_alone(word(i), target, site(i));
    return team.all(ok);
  }
  // Whether waiting for each would end at once. Waits for nothing, and shows nothing of what came before the words.
  template <class G, class WordOf>
  __device__ bool are_there(const G& g, int count, const WordOf& word, Epoch target) const {
    const TeamGroup& team = sharers(g);
    bool there = true;
    for (int i = team.thread(); i < count; i += team.size())
      there = there && load_relaxed(*reinterpret_cast<const SignalWord*>(self().local(word(i)))) >= target;
    return team.all(there);
  }
  // I2: the part of a source's table that has this token's entries; await_routing saw the first part.
  template <class G>
  __device__ bool await_entries(const G& g, const Plan& plan, Epoch epoch, int source, int token) {
    const int part = self().links().by_part_tokens.quotient(token);
    return part == 0 ||
           wait_at_least(g, plan.map.routed(source, part), epoch, {Operation::dispatch, Phase::routing, source, token});
  }

 private:
  __device__ Self& self() { return static_cast<Self&>(*this); }
  __device__ const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace ferry::cuda
