#include "tool/layer/experts/expert_place.h"

#include <fmt/format.h>

#include <array>

#include "tool/layer/base/layer_plan.h"
#include "tool/layer/experts/expert_plan.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {
namespace {

constexpr const char* kOrLeaveOut = "; or leave --experts-on out: the experts then run on the host";

class GpuPlace final : public ExpertPlace {
 public:
  const char* name() const override { return "gpu"; }
  const char* where() const override { return "the GPUs"; }

  void require(const Backend& backend) const override {
    if (const std::string why = gpus().why_none(); !why.empty())
      throw Error(ErrorKind::unsupported, fmt::format("--experts-on gpu: {}{}", why, kOrLeaveOut));
    if (!is_gpu_backend(backend))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("--experts-on gpu: the ranks of backend {} are {}; --backend cuda has GPUs{}",
                              backend.name, backend.ranks_are, kOrLeaveOut));
    if (gpu_expert_maker().make == nullptr)
      throw Error(ErrorKind::unsupported,
                  fmt::format("--experts-on gpu needs cuBLAS, which this build does not have: install that of the CUDA "
                              "toolkit, configure again with -DFERRY_CUBLAS=ON and build{}",
                              kOrLeaveOut));
  }

  ExpertErrors errors() const override {
    return {.of_sum = &gpu_sum_error,
            .of_activation = &gpu_activation_error,
            .lost_silu = kGpuLostSilu,
            .rounds_rows = true};
  }
  // Rows are on the host only for --dump.
  ExpertMemory memory(const Layer& layer, const LayerOptions& options) const override {
    return {message_bytes(options.format, layer.hidden) + 8 + 8 * static_cast<std::uint64_t>(layer.top_k), 0};
  }
  std::unique_ptr<Experts> make(const ExpertsOfRank& of) const override { return gpu_expert_maker().make(of); }
};

std::array<const ExpertPlace*, 2> places() { return {&cpu_experts(), &gpu_experts()}; }

}  // namespace

const ExpertPlace& gpu_experts() {
  static const GpuPlace place;
  return place;
}

std::vector<std::string> expert_place_names() {
  std::vector<std::string> names;
  for (const ExpertPlace* place : places()) names.emplace_back(place->name());
  return names;
}

const ExpertPlace& expert_place_named(std::string_view name) {
  for (const ExpertPlace* place : places())
    if (name == place->name()) return *place;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("--experts-on {}: must be one of {}", name, fmt::join(expert_place_names(), ", ")));
}

ExpertWeights expert_of_group(const ExpertsOfRank& of, int group) {
  const bool has_shared = of.layer.shared_inter != 0;
  if (has_shared && group == 0) return of.layer.shared_expert();
  return of.layer.expert(first_expert(of.plan.shape, of.rank) + group - (has_shared ? 1 : 0));
}

GpuExpertMaker& gpu_expert_maker() {
  static GpuExpertMaker maker;
  return maker;
}

}  // namespace ferry::app
