// A layer whose ranks are processes: the first process has the arrays, and sends every other its tokens and its
// experts; at the end the others send their part of the output.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "tool/io/memory.h"
#include "tool/layer/dump/dump.h"
#include "tool/layer/layer.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

class LayerParts {
 public:
  // Collective over the ranks. `whole` is given in the first process only. Where all ranks are of one process, nothing
  // moves.
  LayerParts(const Ranks& ranks, const Layer* whole, std::chrono::milliseconds deadline);

  // In the first process the whole; elsewhere arrays of the same extents, of which only this rank's parts are there.
  const Layer& layer() const { return layer_; }

 private:
  struct Sizes;
  void allocate(const Sizes& sizes);
  std::vector<std::span<std::byte>> parts_of(int rank, int ranks) const;

  Layer layer_;
  std::vector<Pages> arrays_;
};

// Collective: brings every rank's lines of the output to the first process.
void gather_output(const Ranks& ranks, const Layer& layer, float* output, std::chrono::milliseconds deadline);

// Hands every rank's rows to the first process: called on each rank's thread with its rows; `take` is called in the
// first process, once for each rank.
void gather_rows(const Ranks& ranks, int rank, const DumpedRank& mine, std::chrono::milliseconds deadline,
                 const std::function<void(int rank, const DumpedRank& rows)>& take);

}  // namespace ferry::app
