// Every refusal names the option, the file, the value and what it must be.
#include "tool/layer/inputs/layer_inputs.h"

#include <fmt/core.h>

#include <limits>

#include "ferry/error.h"

namespace ferry::app {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

// An extent that later becomes an int.
int extent(const NpyFile& file, std::size_t axis, const char* what, std::int64_t low) {
  const std::int64_t value = file.extent(axis);
  if (value < low || value > std::numeric_limits<int>::max() / 4)
    refuse(fmt::format("{}: shape is {}: {} is {}, must be {} to {}", file.name(), shape_text(file.shape()), what,
                       value, low, std::numeric_limits<int>::max() / 4));
  return static_cast<int>(value);
}

int half(const NpyFile& file, std::size_t axis) {
  const int rows = extent(file, axis, "2 * inter", 2);
  if (rows % 2 != 0)
    refuse(fmt::format("{}: shape is {}: gate rows and up rows together are {}, must be an even number", file.name(),
                       shape_text(file.shape()), rows));
  return rows / 2;
}

}  // namespace

LayerInputs::LayerInputs(const LayerPaths& paths)
    : tokens_("--tokens", paths.tokens),
      ids_("--topk-ids", paths.ids),
      weights_("--topk-weights", paths.weights),
      gate_up_("--gate-up", paths.gate_up),
      down_("--down", paths.down) {
  if (paths.shared_gate_up.empty() != paths.shared_down.empty())
    refuse("--shared-gate-up and --shared-down: give both or neither");
  check_shapes();
  if (paths.shared_gate_up.empty()) return;
  shared_gate_up_.emplace("--shared-gate-up", paths.shared_gate_up);
  shared_down_.emplace("--shared-down", paths.shared_down);
  check_shared();
}

void LayerInputs::check_shapes() {
  tokens_.require_dtype({DType::f32});
  ids_.require_dtype({DType::i32, DType::i64});
  for (const NpyFile* file : {&weights_, &gate_up_, &down_}) file->require_dtype({DType::f32});

  tokens_.require_shape({-1, -1}, "[tokens, hidden]");
  layer_.tokens = tokens_.extent(0);
  layer_.hidden = extent(tokens_, 1, "hidden", kHiddenMultiple);
  if (layer_.hidden % kHiddenMultiple != 0)
    refuse(fmt::format("{}: hidden is {}, must be a multiple of {}", tokens_.name(), layer_.hidden, kHiddenMultiple));
  ids_.require_shape({layer_.tokens, -1}, "[tokens, K]");
  if (ids_.extent(1) < 1 || ids_.extent(1) > kMaxTopK)
    refuse(fmt::format("{}: K is {}, must be 1 to {}", ids_.name(), ids_.extent(1), kMaxTopK));
  layer_.top_k = static_cast<int>(ids_.extent(1));
  weights_.require_shape({layer_.tokens, layer_.top_k}, "[tokens, K]");
  gate_up_.require_shape({-1, -1, layer_.hidden}, "[experts, 2 * inter, hidden]");
  layer_.experts = extent(gate_up_, 0, "experts", 1);
  layer_.inter = half(gate_up_, 1);
  down_.require_shape({layer_.experts, layer_.hidden, layer_.inter}, "[experts, hidden, inter]");
  if (layer_.top_k > layer_.experts)
    refuse(fmt::format("{}: K is {}, must be at most the number of experts, {}: the ids of a token are distinct",
                       ids_.name(), layer_.top_k, layer_.experts));

  layer_.x = tokens_.as<float>();
  layer_.ids = ids_.tensor();
  layer_.weights = weights_.as<float>();
  layer_.gate_up = gate_up_.as<float>();
  layer_.down = down_.as<float>();
}

void LayerInputs::check_shared() {
  shared_gate_up_->require_dtype({DType::f32});
  shared_down_->require_dtype({DType::f32});
  shared_gate_up_->require_shape({-1, layer_.hidden}, "[2 * inter, hidden]");
  layer_.shared_inter = half(*shared_gate_up_, 0);
  shared_down_->require_shape({layer_.hidden, layer_.shared_inter}, "[hidden, inter]");
  layer_.shared_gate_up = shared_gate_up_->as<float>();
  layer_.shared_down = shared_down_->as<float>();
}

std::vector<MemoryNeed> LayerInputs::memory() const {
  std::vector<MemoryNeed> needs;
  for (const NpyFile* file : {&tokens_, &ids_, &weights_, &gate_up_, &down_})
    needs.push_back({file->name(), file->data_bytes()});
  for (const auto* file : {&shared_gate_up_, &shared_down_})
    if (*file) needs.push_back({(*file)->name(), (*file)->data_bytes()});
  return needs;
}

std::int64_t LayerInputs::check_ids() const {
  std::int64_t named = 0;
  for (std::int64_t token = 0; token < layer_.tokens; ++token) {
    for (int k = 0; k < layer_.top_k; ++k) {
      const std::int64_t id = layer_.id(token, k);
      if (id < -1 || id >= layer_.experts)
        refuse(fmt::format("{}: token {}, k {}: id is {}, must be 0 to {}, or -1 for no expert", ids_.name(), token, k,
                           id, layer_.experts - 1));
      if (id < 0) continue;
      ++named;
      for (int earlier = 0; earlier < k; ++earlier)
        if (layer_.id(token, earlier) == id)
          refuse(fmt::format("{}: token {}: id {} is at k {} and at k {}, must be there once", ids_.name(), token, id,
                             earlier, k));
    }
  }
  return named;
}

}  // namespace ferry::app
