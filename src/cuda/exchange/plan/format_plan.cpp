#include "cuda/exchange/plan/format_plan.h"

#include "cuda/device/refuse.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"

namespace ferry::cuda {
namespace {

const DispatchLauncher& scaling_launcher(const DispatchLauncher* launcher, int rank) {
  if (launcher == nullptr)
    refuse(ErrorKind::unsupported, rank,
           "dynamic_scales is on, for which the kernels that a program compiles (CompiledExchange) have no dispatch; "
           "leave it out, or use Exchange");
  return *launcher;
}

const DispatchLauncher& launcher_for(const Launchers& launchers, const ExchangeOptions& options, int rank) {
  if (options.dynamic_scales) return scaling_launcher(launchers.scaling, rank);
  const AnyFormat& format = options.format;
  if (!format.encodes()) return *launchers.given_rows;  // which receives rows of any format, too
  const DispatchLauncher* launcher = launchers.find_dispatch(format.name());
  if (launcher == nullptr)
    refuse(ErrorKind::unsupported, rank,
           "no GPU kernel for the format {}; give one of all_formats(), or compile kernels for it: CompiledExchange "
           "(ferry/cuda/compiled_exchange.cuh)",
           format.name());
  return *launcher;
}

const CombineLauncher& launcher_for_results(const Launchers& launchers, const AnyFormat& format, int rank) {
  const CombineLauncher* launcher = launchers.find_combine(format.name());
  if (launcher == nullptr)
    refuse(ErrorKind::unsupported, rank,
           "result_format is {}, for which these kernels have no combine; give one of result_formats(), or compile "
           "kernels for it, with hooks for any: Results of CompiledExchange (ferry/cuda/compiled_exchange.cuh)",
           format.name());
  return *launcher;
}

const CombineLauncher* f16_launcher(const Launchers& launchers, const AnyFormat& format) {
  return launchers.find_f16_combine == nullptr ? nullptr : launchers.find_f16_combine(format.name());
}

ExchangeKernels kernels_of(const Launchers& launchers, const ExchangeOptions& options, int rank) {
  return {launcher_for(launchers, options, rank),
          options.dynamic_scales ? scaling_launcher(launchers.given_scaled_rows, rank) : *launchers.given_rows,
          launcher_for_results(launchers, options.result_format, rank),
          f16_launcher(launchers, options.result_format),
          *launchers.small,
          *launchers.receive};
}

}  // namespace

std::vector<FormatPlan> format_plans(const RankDevice& device, int rank, const Shape& shape,
                                     const ExchangeOptions& options, const HeapMap& map, const Launchers& launchers) {
  if (launchers.of_program && !options.more_formats.empty())
    refuse(ErrorKind::unsupported, rank,
           "more_formats has {} formats; kernels that a program compiles (CompiledExchange) have one format: leave it "
           "out, or use Exchange",
           options.more_formats.size());
  std::vector<FormatPlan> plans;
  for (int format = 0; format < num_formats(options); ++format) {
    const ExchangeOptions in_format = options_in(options, format);
    const Plan plan = make_plan(shape, in_format, make_heap_map(shape, in_format, rank, map.has_remote_ranks()), rank);
    const ExchangeKernels kernels = kernels_of(launchers, in_format, rank);
    plans.push_back({plan.map.message_bytes(), plan.alignment, global_scale_at(in_format, shape.hidden),
                     uses_input_scale(in_format), kernels, KernelPlan(device, rank, shape, in_format, plan, kernels)});
  }
  return plans;
}

}  // namespace ferry::cuda
