// The GPUs that the part with CUDA registers; without this part there are none, and the reason is said.
#include "tool/ranks/gpus.h"

#include <fmt/core.h>

namespace ferry::app {
namespace {

constexpr const char* kWhy = "this build has no GPU ranks: " FERRY_WHY_NO_GPUS;  // as CMake says it

[[noreturn]] void refuse_gpus() { throw Error(ErrorKind::unsupported, kWhy); }

const Gpus*& registered() {
  static const Gpus none;
  static const Gpus* found = &none;
  return found;
}

}  // namespace

std::string why_no_gpu_is_found(int driver, int runtime, const std::string& error) {
  const auto version = [](int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); };
  if (driver == 0) return "no GPU was found: this machine has no NVIDIA driver (libcuda.so.1)";
  if (driver / 1000 < runtime / 1000)
    return fmt::format(
        "no GPU was found: the NVIDIA driver is for CUDA {}, and this build needs one for CUDA {}.0 or newer",
        version(driver), runtime / 1000);
  return fmt::format("no GPU was found ({})", error.empty() ? "the driver lists none" : error);
}

std::string Gpus::why_none() const { return kWhy; }
std::vector<GpuInfo> Gpus::infos() const { return {}; }
std::string Gpus::versions() const { return {}; }
int Gpus::of_this_process() const { refuse_gpus(); }
std::vector<std::unique_ptr<World>> Gpus::make_worlds(const std::vector<int>&, bool) const { refuse_gpus(); }
std::unique_ptr<Job> Gpus::start_job(bool) const { refuse_gpus(); }
std::unique_ptr<RankCalls> Gpus::make_calls(int, const Shape&, const RowLayout&, RowOrder) const { refuse_gpus(); }

const Gpus& gpus() { return *registered(); }
void set_gpus(const Gpus& found) { registered() = &found; }

}  // namespace ferry::app
