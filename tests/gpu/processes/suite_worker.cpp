// The conformance suite, as one of its ranks, and what processes alone can get wrong.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "conformance/rounds/rank_round.h"
#include "conformance/suite.h"
#include "gpu/few_gpus.h"
#include "support/processes/lost_process.h"
#include "support/processes/process_suite.h"
#include "support/processes/workers.h"

namespace ferry::test {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<World> staged_gpu_world(const ProcessPlace& place) {
  CudaProcessOptions options;
  options.place = place;
  options.device = gpu_of(place.rank);
  options.staged = options.share_gpus = true;
  return make_cuda_process_world(options);
}

// Set-up calls only, for running this program's own machinery where there is no GPU.
class BootstrapWorld final : public World {
 public:
  explicit BootstrapWorld(const ProcessPlace& place)
      : bootstrap_({net::parse_address(place.address), place.rank, place.size, place.job}, kDefaultDeadline) {}
  WorldKind kind() const override { return WorldKind::other; }
  const char* backend() const override { return "bootstrap"; }
  int rank() const override { return bootstrap_.rank(); }
  int size() const override { return bootstrap_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  milliseconds deadline) override {
    bootstrap_.all_gather(mine, all, mask, deadline);
  }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape&, const ExchangeOptions&, const HeapMap&) override {
    throw Error(ErrorKind::unsupported, "a world without exchanges");
  }

 private:
  net::Bootstrap bootstrap_;
};

std::unique_ptr<World> bootstrap_world(const ProcessPlace& place) { return std::make_unique<BootstrapWorld>(place); }

void share_a_gpu() {
  CudaProcessOptions options;
  options.device = 0;
  conformance::expect_error(-1, "two ranks on one GPU", ErrorKind::invalid_argument, {"ranks 0 and 1", "GPU"},
                            [&] { make_cuda_process_world(options); });
  options.place.job = "one of them says so";
  options.share_gpus = place_of_process().rank == 0;
  conformance::expect_error(-1, "one of two that may share a GPU", ErrorKind::invalid_argument,
                            {"ranks 0 and 1", "share_gpus on both"}, [&] { make_cuda_process_world(options); });
}

void name_a_device_that_is_not_there() {
  CudaProcessOptions options;
  options.device = num_cuda_devices();
  conformance::expect_error(-1, "no such device", ErrorKind::invalid_argument, {"device", "does not exist"},
                            [&] { make_cuda_process_world(options); });
}

}  // namespace

int work(const std::string& what) {
  const std::size_t colon = what.find(':');
  const std::string kind = what.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : what.substr(colon + 1);
  try {
    if (kind == "suite" || kind == "bootstrap") {
      ProcessSuite processes(place_of_process(), kind == "suite" ? staged_gpu_world : bootstrap_world);
      return processes.run_suite(processes.target(kind == "suite" ? "cuda" : "bootstrap"), rest);
    }
    if (kind == "kill") lose_a_process(*staged_gpu_world(place_of_process()), rest, SIGKILL);
    if (kind == "stop") lose_a_process(*staged_gpu_world(place_of_process()), rest, SIGSTOP);
    if (kind == "stop_alone" && place_of_process().rank == kLostProcess) kill(getpid(), SIGSTOP);
    if (kind == "share") share_a_gpu();
    if (kind == "no_device") name_a_device_that_is_not_there();
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", what.c_str(), error.what());
    return 1;
  }
}

}  // namespace ferry::test
