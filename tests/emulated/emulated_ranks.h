// EmulatedRanks: all ranks of an exchange on emulated GPUs, one each, called by one thread of the host. Everything that
// a run does follows from its seed, so a failure comes again. Each rank checks all its outputs against the oracle, byte
// for byte.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ferry/exchange.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"
#include "support/session.h"

namespace ferry::test {

// A kernel's parameter may be changed before it is launched: `change` is called with it on the host's thread.
template <class Params>
void change_params(std::function<void(Params&)> change) {
  emulated::change_of<Params> = std::move(change);
}

// How ranks reach each other.
enum class EmulatedReach {
  direct,
  late_puts
};  // by stores; at an odd distance by puts that arrive late (late_world.h)

// What became of a round at one rank; the outputs are on the host.
using RoundCheck = std::function<void(const SessionRound& round, int rank, const conformance::RankRound& got)>;
// All outputs are the oracle's.
void check_round(const SessionRound& round, int rank, const conformance::RankRound& got);

class EmulatedRanks {
 public:
  EmulatedRanks(const Shape& shape, const ExchangeOptions& options, const emulated::Gpus& gpus = {},
                EmulatedReach reach = EmulatedReach::direct);
  ~EmulatedRanks();
  EmulatedRanks(const EmulatedRanks&) = delete;
  EmulatedRanks& operator=(const EmulatedRanks&) = delete;

  Exchange& exchange(int rank) { return *exchanges_[static_cast<std::size_t>(rank)]; }
  cudaStream_t stream(int rank) { return streams_[static_cast<std::size_t>(rank)]; }

  // Enqueues the rounds of all ranks, lets the machine run them in the order that the seed chooses, and checks what
  // came out. Rounds follow each other without the host, so a rank may be ahead of another one. Throws
  // conformance::Failure, and std::runtime_error for what the machine found.
  void run(const std::vector<SessionRound>& rounds, const emulated::MachineSettings& machine,
           const RoundCheck& check = check_round);
  // Runs what was enqueued. Throws std::runtime_error for what the machine found.
  void finish();

 private:
  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::vector<cudaStream_t> streams_;
};

// The session on ranks of its own.
void run_emulated(const Session& session, const emulated::MachineSettings& machine, const emulated::Gpus& gpus = {},
                  EmulatedReach reach = EmulatedReach::direct);

}  // namespace ferry::test
