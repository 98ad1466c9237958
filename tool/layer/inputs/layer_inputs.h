// The arrays of `ferry layer`: opened, and checked against each other before anything is computed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tool/io/memory.h"
#include "tool/io/npy.h"
#include "tool/layer/base/layer_plan.h"

namespace ferry::app {

struct LayerPaths {
  std::string tokens, ids, weights, gate_up, down;
  std::string shared_gate_up, shared_down;  // both or neither
};

class LayerInputs {
 public:
  // Checks dtypes and shapes only from the headers. Throws Error(io) for a file that is no array, and
  // Error(invalid_argument) for arrays that do not fit.
  explicit LayerInputs(const LayerPaths& paths);

  const Layer& layer() const { return layer_; }
  std::vector<MemoryNeed> memory() const;  // of the files

  // Every id is in [-1, experts) and no token names an expert twice: throws Error(invalid_argument) that names the
  // first that is not. Returns how many entries name an expert.
  std::int64_t check_ids() const;

 private:
  void check_shapes();
  void check_shared();

  NpyFile tokens_, ids_, weights_, gate_up_, down_;
  std::optional<NpyFile> shared_gate_up_, shared_down_;
  Layer layer_;
};

}  // namespace ferry::app
