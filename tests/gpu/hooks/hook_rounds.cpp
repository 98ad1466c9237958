#include "gpu/hooks/hook_rounds.h"

#include "gpu/captured_graph.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using cuda::DeviceMemory;

constexpr int kMasked = 1;

// Takes from a round what hooks give in its place. Sums that an epilogue adds up begin at zero.
HookValues take_values(const HookCase& each, const Scenario& scenario, const DeviceMemory& scale, DeviceRound& round) {
  HookValues values;
  values.late_from = each.late_from;
  values.top_k = scenario.settings.shape.top_k;
  values.hidden = scenario.settings.shape.hidden;
  cuda_check(cudaMemcpy(scale.data(), &scenario.settings.input_scale, sizeof(float), cudaMemcpyHostToDevice),
             "cudaMemcpy");
  values.input_scale = reinterpret_cast<const float*>(scale.data());
  round.in.input_scale = nullptr;
  ConstTensor& weights = each.reduction == Reduction::by_rank ? round.in.topk_weights : round.combine_in.topk_weights;
  if (each.weight) {
    values.weights = static_cast<const float*>(weights.data);
    weights = {};
  }
  if (each.epilogue) {
    values.sums = static_cast<float*>(round.combine_out.tokens.data);
    const auto bytes = static_cast<std::size_t>(round.combine_out.tokens.elements()) * sizeof(float);
    cuda_check(cudaMemsetAsync(values.sums, 0, bytes, cudaStreamPerThread), "cudaMemsetAsync");
    round.combine_out.tokens = {};
  }
  return values;
}

// At a dispatch no hook is called that is combine's: these would read null.
HookValues values_at_dispatch(const HookCase& each, HookValues values) {
  values.sums = nullptr;
  if (each.reduction == Reduction::exact) values.weights = nullptr;
  return values;
}

// A rank whose rounds have a handle, on the stream of its thread: ranks of other threads may share its GPU.
class HandleRounds {
 public:
  HandleRounds(World& world, const HookCase& each, const Scenario& scenario)
      : world_(world),
        calls_(each.make(world, scenario.settings.shape, scenario.settings.options)),
        handle_(calls_->exchange()),
        round_(scenario, world.rank()),
        sums_(round_.combine_out.tokens),
        values_(take_values(each, scenario, scale_, round_)),
        at_dispatch_(values_at_dispatch(each, values_)),
        mask_(scenario.settings.options.mask) {
    round_.combine_out.tokens = sums_;  // a combine with a handle takes its shape
  }

  void leave(bool split) {
    run([&] { call(round_.in, round_.leaving(handle_), split); });
  }
  void replay(bool split) {
    run([&] { call(round_.replayed(handle_), round_.out, split); });
  }
  void replay_captured(int times) {
    const CapturedGraph graph(stream_, [&] { call(round_.replayed(handle_), round_.out, false); });
    for (int i = 0; i < times; ++i) run([&] { graph.launch(stream_); });
  }

 private:
  void call(const DispatchInput& in, const DispatchOutput& out, bool split) {
    calls_->dispatch(in, out, at_dispatch_, split);
    calls_->combine(round_.returned(handle_), round_.combine_out, values_, split);
  }
  template <class Enqueue>
  void run(const Enqueue& enqueue) {
    round_.reset(stream_);
    if (values_.sums != nullptr)
      cuda_check(cudaMemsetAsync(values_.sums, 0, static_cast<std::size_t>(sums_.elements()) * sizeof(float), stream_),
                 "cudaMemsetAsync");
    world_.barrier(mask_, conformance::kSuiteDeadline);
    enqueue();
    world_.barrier(mask_, conformance::kSuiteDeadline);
    round_.fetch(stream_);
    calls_->exchange().check();
    round_.host.check_rows();
    round_.host.check_tokens();
  }

  World& world_;
  std::unique_ptr<HookedCalls> calls_;
  Handle handle_;
  HandleRound round_;
  DeviceMemory scale_{sizeof(float)};
  Tensor sums_;
  HookValues values_;
  HookValues at_dispatch_;
  RankMask mask_;
  cudaStream_t stream_ = cudaStreamPerThread;
};

void run_handle_rounds(World& world, const HookCase& each, const Scenario& scenario) {
  HandleRounds rounds(world, each, scenario);
  for (const bool split : {false, true}) rounds.leave(split);
  for (const bool split : {false, true}) rounds.replay(split);
  rounds.replay_captured(2);
  rounds.leave(false);
}

}  // namespace

Scenario make_hook_scenario(const HookCase& each, int ranks) {
  ScenarioSettings settings;
  settings.shape = {ranks, 3 * ranks + 1, 3, each.tokens, each.hidden};
  settings.options = conformance::options_for("bf16", each.reduction);
  settings.options.format = each.format;
  settings.options.fused_shared_expert = each.shared;
  if (each.masked && ranks > 2) {
    settings.options.mask.assign(static_cast<std::size_t>(ranks), false);
    settings.options.mask[kMasked] = true;
  }
  settings.routing = each.routing;
  settings.row_orders = {each.order};
  if (each.order == RowOrder::by_source) settings.options.row_orders = {RowOrder::by_source};
  settings.output_dtype = each.epilogue ? DType::f32 : DType::bf16;
  settings.input_scale = each.format == format_named("nvfp4") ? 37.5f : 1.0f;
  settings.seed = 77;
  return conformance::make_scenario(settings);
}

void run_hook_rounds(World& world, int device, const HookCase& each, const Scenario& scenario) {
  const RankMask& mask = scenario.settings.options.mask;
  if (is_masked(mask, world.rank())) return;
  cuda_check(cudaSetDevice(device), "cudaSetDevice");  // where the tensors of this thread are made
  if (each.handles) return run_handle_rounds(world, each, scenario);
  const auto calls = each.make(world, scenario.settings.shape, scenario.settings.options);
  for (int turn = 0; turn < 4; ++turn) {
    DeviceRound round(scenario, world.rank());
    const DeviceMemory scale(sizeof(float));
    const HookValues values = take_values(each, scenario, scale, round);
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    world.barrier(mask, conformance::kSuiteDeadline);
    const bool split = turn % 2 == 1;
    calls->dispatch(round.in, round.out, values_at_dispatch(each, values), split);
    calls->combine(round.combine_in, round.combine_out, values, split);
    world.barrier(mask, conformance::kSuiteDeadline);  // all is enqueued: ranks may share a GPU, and fetch waits for it
    round.fetch();
    world.barrier(mask, conformance::kSuiteDeadline);
    round.host.check_rows();
    round.host.check_tokens();
  }
}

}  // namespace ferry::test
