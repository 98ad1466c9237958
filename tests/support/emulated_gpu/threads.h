// The threads of a running kernel, by blocks and warps, and where each of them is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/emulated_gpu/device_calls.h"
#include "support/emulated_gpu/fiber.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::emulated {

enum class Doing : std::uint8_t { runs, looks_at_clock, is_at_barrier, is_in_warp_call, awaits_kernel, has_ended };

struct Warp;
struct Block;
struct GridRun;

// A bulk copy: it reads its source at some time, and stores what it read at a later one.
class BulkCopy final : public Late {
 public:
  BulkCopy(std::byte* to, const std::byte* from, std::size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  bool step() override;
  bool has_read() const { return stage_ >= 1; }
  bool is_done() const { return stage_ == 2; }

 private:
  std::byte* to_;
  const std::byte* from_;
  std::size_t bytes_;
  std::vector<std::byte> read_;
  int stage_ = 0;
};
struct SharedCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};
// Copies of one thread: groups that it committed, and those since.
template <class Copy>
struct CopyGroups {
  std::vector<std::vector<Copy>> groups;  // the oldest first
  std::vector<Copy> open;

  void commit() {
    groups.push_back(std::move(open));
    open.clear();
  }
};

// What a switch to it needs lies in one line of the cache, from `warp` on.
struct alignas(64) Thread : ThreadView {
  Warp* warp = nullptr;
  const char* call = "";  // where it waits
  int barrier = 0;        // the same
  int lane = 0;
  Doing doing = Doing::runs;
  bool has_fenced = false;  // since its last barrier
  bool all_fenced = false;  // all threads of its last barrier had
  Fiber fiber;
  CopyGroups<std::shared_ptr<BulkCopy>> bulk;
  CopyGroups<SharedCopy> to_shared;
};

// A call of a warp under way. Two sets of values: a lane may read the old ones while others make the next call.
struct WarpCall {
  unsigned lanes = 0;
  unsigned arrived = 0;
  const char* what = "";
  bool all_fenced = true;
  int turn = 0;
  std::uint64_t values[2][32] = {};
};

struct Warp {
  Block* block = nullptr;
  Thread* threads = nullptr;
  int count = 0;
  unsigned ready = 0;  // lanes
  bool is_listed = false;
  const std::byte* suspended_at[32] = {};  // the frame in which each lane was left
  WarpCall call;
};

struct Barrier {
  int threads = 0;
  const char* what = "";
  bool all = true;
  bool all_fenced = true;
  std::vector<Thread*> waiting;
  int turn = 0;
  bool answers[2] = {};
};

struct Block {
  GridRun* grid = nullptr;
  std::vector<std::byte> memory;
  std::unique_ptr<Thread[]> threads;
  std::vector<Warp> warps;
  Barrier barriers[16];
  int live = 0;
  bool lets_next_launch = false;
};

struct GridRun {
  Grid grid;
  int device = 0;
  std::vector<std::unique_ptr<Block>> blocks;
  int live_blocks = 0;
  int blocks_before_next = 0;  // that have neither ended nor let the next kernel launch
  bool is_first = false;       // of its stream: all earlier kernels have ended

  GridRun(Grid grid_given, int device_given);
};

// Where the threads of the kernel are, for people.
std::string describe(const GridRun& run);

}  // namespace ferry::emulated
