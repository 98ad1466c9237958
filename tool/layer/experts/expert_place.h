// Where the experts of a layer run: the seam between a rank's calls on its exchange and the matrix products. A place
// makes the experts of each rank. `ferry layer --experts-on` names it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ferry/exchange.h"
#include "tool/layer/base/layer_plan.h"

namespace ferry::app {

struct Backend;
class RankBuffers;
class RankCalls;

// The experts of one rank. In every pass of a round: take(), run() in the first, results().
class Experts {
 public:
  virtual ~Experts() = default;
  // After a dispatch: brings to the host what run() reads there.
  virtual void take() = 0;
  // Computes the results of the rows that came. Returns how many rows it worked on. No rank of this machine is in a
  // call of its exchange meanwhile.
  virtual std::int64_t run() = 0;
  // The results for combine, in the memory that the exchange takes.
  virtual ConstTensor results() = 0;
};

// What the experts of a rank work on. All of it outlives their last call. Experts are destroyed when all ranks of the
// process have ended, so their destructor uses none of it.
struct ExpertsOfRank {
  const Layer& layer;
  const LayerOptions& options;
  const LayerPlan& plan;
  const RowLayout& layout;
  int rank;
  int device;  // or kHostMemory
  RankBuffers& buffers;
  RankCalls& calls;
  const std::function<void(std::int64_t)>& progress;  // told of rows done; may be empty
};

// The shared expert, where the layer has one, is group 0.
ExpertWeights expert_of_group(const ExpertsOfRank& of, int group);

// How far the experts of a place may be from the exact ones: what the check's bound is made from. A relative error is
// of what the float32 steps compute, before they are rounded to bf16.
struct ExpertErrors {
  double (*of_sum)(int n);               // |sum of n products - exact| <= this * the sum of their magnitudes
  double (*of_activation)(double gate);  // of silu(gate) * up, where |gate| is at most this large
  double lost_silu;                      // the largest |silu(gate)| that may become 0
  bool rounds_rows;                      // rows are rounded to bf16 when they were decoded
};

// Host memory.
struct ExpertMemory {
  std::uint64_t row = 0;      // of a row that came, with its result
  std::uint64_t scratch = 0;  // of a rank
};

class ExpertPlace {
 public:
  virtual ~ExpertPlace() = default;
  virtual const char* name() const = 0;   // for --experts-on
  virtual const char* where() const = 0;  // for people: "the host"
  // Throws Error where experts cannot run there for ranks of this backend: invalid_argument, or unsupported where this
  // build or this machine lacks something. The text says what to do.
  virtual void require(const Backend& backend) const = 0;
  virtual ExpertErrors errors() const = 0;
  virtual ExpertMemory memory(const Layer& layer, const LayerOptions& options) const = 0;
  // On the rank's thread, before any rank is in a call of its exchange.
  virtual std::unique_ptr<Experts> make(const ExpertsOfRank& of) const = 0;
};

const ExpertPlace& gpu_experts();  // each rank's on its GPU, through cuBLAS
// The names of both places, cpu_experts() (base/layer_plan.h) among them, and the place of a name. Throws
// Error(invalid_argument) where there is none.
std::vector<std::string> expert_place_names();
const ExpertPlace& expert_place_named(std::string_view name);

// What makes the experts of a GPU. layer/cuda sets it, where the build has cuBLAS.
struct GpuExpertMaker {
  std::unique_ptr<Experts> (*make)(const ExpertsOfRank& of) = nullptr;
};
GpuExpertMaker& gpu_expert_maker();

}  // namespace ferry::app
