// What makes the result of a layer worthless and is no rounding: NaN and infinities, and tokens that their format or
// its input scale does not carry. A check that compares with the same arithmetic does not see these.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tool/io/memory.h"
#include "tool/layer/base/layer_plan.h"
#include "tool/layer/inputs/layer_inputs.h"

namespace ferry::app {

// Values of [rows, columns] that are NaN or infinite.
struct NonFinite {
  std::int64_t values = 0;
  std::int64_t rows = 0;  // with such a value
  std::int64_t first_row = -1;
  std::int64_t first_column = -1;
};
NonFinite find_non_finite(const float* values, std::int64_t rows, std::int64_t columns);

// Router weights that are NaN or infinite and belong to an id of an expert: [tokens, top_k].
NonFinite find_non_finite_weights(const Layer& layer);

// Where the NaN or infinity of a token's output comes from: the option, the file and the place, or that an overflow
// made it. `paths` names the files of `layer`.
std::string origin_of_non_finite(const Layer& layer, const LayerPaths& paths, std::int64_t token);

// Finite rows of which less than half is left in the format: where |x - decoded| is more than |x| / 2, in the Euclidean
// norm. Where the scale fits, no format loses more than 0.4 of |x|.
struct LostTokens {
  std::int64_t count = 0;
  std::int64_t first = -1;
  double rms = 0;  // of the first
  double rms_of_error = 0;
  double largest = 0;  // magnitude of all finite rows
};

class LossFinder {
 public:
  LossFinder(const AnyFormat& format, int hidden, float input_scale);
  void add(std::int64_t index, std::span<const float> row);
  const LostTokens& lost() const { return lost_; }
  // "3 of 61 tokens are wrong by more than half of their size as nvfp4, ... (...; try --input-scale 683)"; empty where
  // none is. `what`: "token".
  std::string text(const std::string& what, std::int64_t of) const;

 private:
  std::string advice() const;

  AnyFormat format_;
  int hidden_;
  float input_scale_;
  std::vector<float> decoded_, difference_;
  Pages payload_, scales_;
  LostTokens lost_;
};
// Finds the tokens of a layer, as bf16, that the format loses.
LossFinder find_lost_tokens(const Layer& layer, const AnyFormat& format, float input_scale);

// The largest magnitude that nvfp4 holds under an input scale of 1: the largest scale of a block, times the largest
// element.
inline constexpr double kLargestOfNvfp4 = 448.0 * 6.0;
// The largest input scale that limits no block's scale of nvfp4, for tokens of this magnitude.
inline double fitting_input_scale(double largest) { return kLargestOfNvfp4 / largest; }

}  // namespace ferry::app
