// KernelPlan: the kernels of an exchange as loaded on its device. For each call it chooses the launch policy: how many
// blocks there are and which roles they have.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cuda/device/rank_device.h"
#include "cuda/policy/problem.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

inline constexpr int kLeastBlocks = 3;  // of a kernel: one for each role

// A kernel on the device.
struct LoadedKernel {
  int blocks_per_multiprocessor = 0;  // 0: the device has too little shared memory for one
  bool can_pair_blocks = false;       // dispatch: two logical blocks can be one thread block
};

// Which halves of an operation a call runs: the sending one, the receiving one, or both.
struct Halves {
  bool sends;
  bool receives;
};

// Which kernel of a dispatch.
enum class DispatchKernel {
  encodes,     // that of the exchange's format
  given_rows,  // for tokens that the caller encoded
  receives,    // ReceiveLaunchers: each of its thread blocks is one logical block
};

// The dtypes of a combine's rows, bias and sums.
struct SumTypes {
  bool rows_are_f32 = false;
  bool has_f16 = false;  // some of them are: by kernels of their own
};

struct DispatchLaunch {
  DispatchPolicy policy;
  bool backs_off;
  bool counts_all;
  int parts;
  int parts_per_routing_block;
  std::uint32_t block_bytes;
  bool lists_tokens;   // a whole dispatch of rows by_source: one kernel, which also makes the token lists
  bool scales_follow;  // the scales kernel stores the scales instead of the dispatch kernel
};

struct CombineLaunch {
  CombinePolicy policy;
  bool backs_off;
  std::size_t shared_bytes;
};

// The kernels that one exchange launches.
struct ExchangeKernels {
  const DispatchLauncher& dispatch;    // of its format
  const DispatchLauncher& given_rows;  // of tokens that the caller encoded
  const CombineLauncher& combine;      // of its format of results
  const CombineLauncher* f16_combine;  // the same for rows, bias or sums that are f16; null: there is none
  const SmallLaunchers& small;
  const ReceiveLaunchers& receive;
};

class KernelPlan {
 public:
  // Loads all kernels that the exchange launches on `device`, which must be current. Throws Error(unsupported) where it
  // has too little shared memory, and Error(invalid_argument) where the exchanges that share it leave too few blocks.
  KernelPlan(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options, const Plan& plan,
             const ExchangeKernels& kernels);

  // `order`: of the rows, where the kernel receives.
  DispatchLaunch dispatch(int num_tokens, Halves halves, DispatchKernel which, RowOrder order, int max_blocks) const;
  // Of rows of a handle, which only the device knows.
  RowOrder likely_order() const { return only_by_source_ ? RowOrder::by_source : RowOrder::by_expert; }
  CombineLaunch combine(int num_tokens, Halves halves, SumTypes types, bool exact, RowOrder order,
                        int max_blocks) const;
  DeviceLimits scales_limits(int max_blocks) const { return limits(scales_, max_blocks); }

  // No kernel of another exchange runs at the same time: a kernel may be launched by PDL (I21).
  bool is_exclusive() const { return exchanges_ == 1; }
  // The most blocks of a kernel that waits for no rank.
  int most_small_blocks(int max_blocks) const;

  int routing_words() const { return routing_words_; }
  const TableParts& table_parts() const { return table_parts_; }

 private:
  void log_loaded(int device, int rank) const;
  int most_blocks(const LoadedKernel& kernel) const;
  DeviceLimits limits(const LoadedKernel& kernel, int max_blocks) const;
  // How many messages arrive, if every rank has as many tokens as this one.
  int likely_arrivals(int num_tokens) const { return num_tokens * std::min(plan_.shape.ranks, plan_.shape.top_k); }

  Plan plan_;
  TableParts table_parts_;
  int routing_words_;
  int multiprocessors_ = 0;
  int reserved_multiprocessors_;  // left to other libraries
  int exchanges_;                 // whose kernels share the device
  double local_fraction_;         // of all experts, the fraction of this world; with skip_a2a the world is this rank
  bool may_copy_results_;         // combine: results of one row can be copied
  bool reads_rows_twice_;         // combine: results have a scale each
  bool only_by_source_;           // the only order of rows of this exchange
  int scale_words_ = 0;           // of a row that the scales kernel can store
  bool has_pipeline_ = false;     // combine: rows can come through shared memory
  LoadedKernel dispatch_;
  LoadedKernel given_rows_;
  LoadedKernel combine_;
  LoadedKernel f16_combine_;
  LoadedKernel scales_;
};

}  // namespace ferry::cuda
