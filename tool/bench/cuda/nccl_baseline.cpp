// NCCL on the same tokens: what a user without Ferry would call. Optional when the tool is built.
#include <fmt/core.h>

#include "tool/bench/cuda/measure.h"

#if defined(FERRY_HAVE_NCCL)

#include <nccl.h>

#include <numeric>

#include "cuda/device/device_memory.h"
#include "tool/bench/cuda/graph_timer.h"

namespace ferry::app {
namespace {

void nccl_check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) throw Error(ErrorKind::system, fmt::format("{}: {}", call, ncclGetErrorString(status)));
}

class Communicators {
 public:
  explicit Communicators(const std::vector<int>& devices) : all_(devices.size()) {
    nccl_check(ncclCommInitAll(all_.data(), static_cast<int>(devices.size()), devices.data()), "ncclCommInitAll");
  }
  ~Communicators() {
    for (ncclComm_t one : all_) ncclCommDestroy(one);
  }
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  ncclComm_t of(const World& world) const { return all_[static_cast<std::size_t>(world.rank())]; }

 private:
  std::vector<ncclComm_t> all_;
};

void all_to_all(const std::byte* from, std::byte* to, std::size_t values, int ranks, ncclComm_t comm,
                cudaStream_t stream) {
  nccl_check(ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < ranks; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * values * 2;
    nccl_check(ncclSend(from + at, values, ncclBfloat16, peer, comm, stream), "ncclSend");
    nccl_check(ncclRecv(to + at, values, ncclBfloat16, peer, comm, stream), "ncclRecv");
  }
  nccl_check(ncclGroupEnd(), "ncclGroupEnd");
}

void measure_rank(const Ranks& ranks, World& world, const Communicators& communicators, const BenchCase& bench,
                  NcclTimes& times) {
  const cuda::DeviceScope scope(ranks.device_of(world));
  const auto size = static_cast<std::size_t>(world.size());
  const std::size_t own =
      static_cast<std::size_t>(bench.shape.max_tokens) * static_cast<std::size_t>(bench.shape.hidden);
  const std::size_t copies = (own * static_cast<std::size_t>(bench.shape.top_k) + size - 1) / size;  // to each rank
  const std::size_t bytes = 2 * size * std::max(own, copies);
  const cuda::DeviceMemory from(bytes), to(bytes);
  const Stream stream;
  ncclComm_t comm = communicators.of(world);
  world.barrier();  // allocating on one device may wait for kernels of another, and those for this rank
  const auto median = [&](const std::function<void()>& call) {
    call();
    stream.wait();
    return BenchSamples{time_graph(world, stream, 4, bench.effort, [&](int) { call(); }).seconds}.at(0.5);
  };
  const double gather = median(
      [&] { nccl_check(ncclAllGather(from.data(), to.data(), own, ncclBfloat16, comm, stream), "ncclAllGather"); });
  const double scatter = median([&] {
    nccl_check(ncclReduceScatter(from.data(), to.data(), own, ncclBfloat16, ncclSum, comm, stream),
               "ncclReduceScatter");
  });
  const double exchange = median([&] { all_to_all(from.data(), to.data(), copies, world.size(), comm, stream); });
  world.barrier();
  if (world.rank() != 0) return;
  times.all_gather = gather;
  times.reduce_scatter = scatter;
  times.all_to_all = exchange;
}

class RanksOfNccl final : public Nccl {
 public:
  explicit RanksOfNccl(const Ranks& ranks) : ranks_(ranks), communicators_(devices_of(ranks)) {}
  NcclTimes measure(const BenchCase& bench) override {
    int version = 0;
    nccl_check(ncclGetVersion(&version), "ncclGetVersion");
    NcclTimes times;
    times.library = fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
    ranks_.run([&](World& world) { measure_rank(ranks_, world, communicators_, bench, times); });
    return times;
  }

 private:
  static std::vector<int> devices_of(const Ranks& ranks) {
    std::vector<int> devices(static_cast<std::size_t>(ranks.size()));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
  }
  const Ranks& ranks_;
  Communicators communicators_;
};

}  // namespace

std::unique_ptr<Nccl> make_nccl(const Ranks& ranks) { return std::make_unique<RanksOfNccl>(ranks); }

}  // namespace ferry::app

#else

namespace ferry::app {

std::unique_ptr<Nccl> make_nccl(const Ranks&) {
  throw Error(ErrorKind::unsupported, "--baseline needs NCCL, " FERRY_WHY_NO_NCCL ", or leave --baseline out");
}

}  // namespace ferry::app

#endif
