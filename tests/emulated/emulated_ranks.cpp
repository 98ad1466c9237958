#include "emulated/emulated_ranks.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "emulated/late_world.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"

namespace ferry::test {
namespace {

using conformance::Form;

void enqueue_dispatch(Exchange& exchange, const DeviceRound& round, Form form, const CallOptions& call) {
  if (form == Form::one_call) return exchange.dispatch(round.in, round.out, call);
  exchange.dispatch_async(round.in, call);
  exchange.dispatch_wait(round.out, call);
}
void enqueue_combine(Exchange& exchange, const DeviceRound& round, Form form, const CallOptions& call) {
  if (form == Form::one_call) return exchange.combine(round.combine_in, round.combine_out, call);
  exchange.combine_async(round.combine_in, call);
  exchange.combine_wait(round.combine_out, call);
}

void enqueue_round(Exchange& exchange, const SessionRound& round, DeviceRound& memory, cudaStream_t stream) {
  CallOptions call;
  call.stream = stream;
  enqueue_dispatch(exchange, memory, round.form, call);
  if (memory.in.row_order == RowOrder::in_place) memory.save_slots(exchange.arrival_slots(), stream);
  if (round.fate == Fate::combined) enqueue_combine(exchange, memory, round.form, call);
  if (round.fate == Fate::abandoned_returning) exchange.combine_async(memory.combine_in, call);
}

}  // namespace

void check_round(const SessionRound& round, int /*rank*/, const conformance::RankRound& got) {
  got.check_rows();
  if (round.fate == Fate::combined) got.check_tokens();
}

EmulatedRanks::EmulatedRanks(const Shape& shape, const ExchangeOptions& options, const emulated::Gpus& gpus,
                             EmulatedReach reach) {
  emulated::set_gpus(gpus);
  emulated::reset({});
  std::vector<int> devices;
  for (int rank = 0; rank < shape.ranks; ++rank) devices.push_back(rank);
  worlds_ = reach == EmulatedReach::direct ? make_cuda_worlds(devices) : make_late_worlds(shape.ranks);
  exchanges_.resize(worlds_.size());
  run_worlds(worlds_, [&](World& world) {
    exchanges_[static_cast<std::size_t>(world.rank())] = std::make_unique<Exchange>(world, shape, options);
  });
  streams_.resize(worlds_.size());
  for (const int device : devices) {
    cuda::cuda_check(cudaSetDevice(device), "cudaSetDevice");
    cuda::cuda_check(cudaStreamCreateWithFlags(&streams_[static_cast<std::size_t>(device)], cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags");
  }
}

EmulatedRanks::~EmulatedRanks() {
  exchanges_.clear();
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  cudaSetDevice(0);
  emulated::reset({});
}

void EmulatedRanks::run(const std::vector<SessionRound>& rounds, const emulated::MachineSettings& machine,
                        const RoundCheck& check) {
  std::vector<std::vector<std::unique_ptr<DeviceRound>>> memory(rounds.size());
  for (std::size_t i = 0; i < rounds.size(); ++i)
    for (std::size_t rank = 0; rank < exchanges_.size(); ++rank) {
      cuda::cuda_check(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
      memory[i].push_back(std::make_unique<DeviceRound>(rounds[i].scenario, static_cast<int>(rank)));
    }
  emulated::MachineSettings settings = machine;
  settings.hosts_are_idle = true;
  emulated::reset(settings);
  {
    const emulated::Hold hold;
    for (std::size_t i = 0; i < rounds.size(); ++i)
      for (std::size_t rank = 0; rank < exchanges_.size(); ++rank)
        enqueue_round(*exchanges_[rank], rounds[i], *memory[i][rank], streams_[rank]);
  }
  finish();
  for (std::size_t i = 0; i < rounds.size(); ++i)
    for (std::size_t rank = 0; rank < memory[i].size(); ++rank) {
      memory[i][rank]->fetch();
      check(rounds[i], static_cast<int>(rank), memory[i][rank]->host);
      memory[i][rank]->check_inputs(static_cast<int>(rank));
    }
}

void EmulatedRanks::finish() {
  for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
  if (const std::string failure = emulated::failure(); !failure.empty()) throw std::runtime_error(failure);
  if (const std::string text = emulated::standstill(); !text.empty())
    throw std::runtime_error("nobody can go on\n" + text);
}

void run_emulated(const Session& session, const emulated::MachineSettings& machine, const emulated::Gpus& gpus,
                  EmulatedReach reach) {
  EmulatedRanks ranks(session.shape, session.options, gpus, reach);
  ranks.run(session.rounds, machine);
}

}  // namespace ferry::test
