// NvshmemWaits: how a block waits on words of its own rank's memory, and whom it tells when a wait fails. The words are
// the same whichever way they are set.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_state.h"
#include "cuda/peer_fabric.cuh"
#include "protocol/fabric.h"
#include "shared/abort_word.h"
#include "shared/wait.h"

namespace ferry::cuda {

class NvshmemWaits {
 public:
  __device__ explicit NvshmemWaits(const PeerLinks& links) : links_(links) {}

  // By one thread.
  template <Scope S>
  __device__ bool wait(const Shared<Epoch, S>& watched, Epoch target, const WaitSite& site) const {
    if (load_acquire(watched) >= target) return true;
    DevicePacer pacer(links_.deadline_ns);
    const Waited waited = wait_at_least(
        watched, target, [this] { return has_abort(); }, pacer);
    const std::uint64_t passed = pacer.waited_ns();
    if (passed != 0) fetch_add_relaxed(links_.waited_ns[site.peer], passed);
    if (waited == Waited::arrived) return true;
    fail(waited, site, load_relaxed(watched), target);
    return false;
  }

  // A word at any rank, some time.
  __device__ void signal(int peer, std::size_t word, Epoch value) const {
    if (links_.heap[peer] != nullptr)
      store_release(*reinterpret_cast<SignalWord*>(links_.heap[peer] + word), value);
    else
      nvshmemx_signal_op(reinterpret_cast<std::uint64_t*>(links_.heap[links_.rank] + word), value, NVSHMEM_SIGNAL_SET,
                         peer);
  }

 private:
  __device__ const SignalWord& abort_of(int peer) const {
    return reinterpret_cast<const SignalWord*>(links_.heap[links_.rank] + links_.abort_words)[peer];
  }
  __device__ bool has_abort() const {
    if (load_relaxed(links_.state->failed) != 0) return true;
    for (int peer = 0; peer < links_.size; ++peer)
      if (links_.masked[peer] == 0 && ends_waits(load_relaxed(abort_of(peer)))) return true;
    return false;
  }

  // I10: the first to fail writes the record and tells every rank, its own memory too, whom it waited for.
  __device__ void fail(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted) const {
    if (fetch_add_ordered(links_.state->failed, 1u) != 0) return;
    WaitRecord record;
    record.operation = site.operation;
    record.phase = site.phase;
    record.my_rank = links_.rank;
    record.missing_rank = site.peer;
    record.reported_by = links_.rank;
    record.token = site.token;
    record.epoch_seen = seen;
    record.epoch_wanted = wanted;
    for (int peer = 0; waited == Waited::aborted && peer < links_.size; ++peer) {
      const Epoch value = links_.masked[peer] != 0 ? 0 : load_acquire(abort_of(peer));
      if (!ends_waits(value)) continue;
      record.missing_rank = rank_waited_for(value);
      record.reported_by = peer;
      break;
    }
    links_.record->wait = record;
    const Epoch value = abort_word(wanted, waited == Waited::aborted, site.peer);
    for (int peer = 0; peer < links_.size; ++peer)
      if (links_.masked[peer] == 0) signal(peer, links_.my_abort_word, value);
    store_release(links_.record->failed, 1u);
  }

  const PeerLinks& links_;
};

}  // namespace ferry::cuda
