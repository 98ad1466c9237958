#include "support/emulated_gpu/threads.h"

#include <cstring>
#include <map>

namespace ferry::emulated {
namespace {

constexpr std::size_t kLine = 128;
constexpr std::byte kGarbage{0xcd};  // in shared memory at first

std::byte* first_line(std::vector<std::byte>& memory) {
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (kLine - at % kLine) % kLine;
}

std::unique_ptr<Block> make_block(GridRun& run, const uint3& index) {
  const Grid& grid = run.grid;
  auto block = std::make_unique<Block>();
  block->grid = &run;
  block->memory.assign(grid.shared_bytes + kLine, kGarbage);
  const auto threads = static_cast<int>(grid.block_size.x * grid.block_size.y);
  block->live = threads;
  block->threads = std::make_unique<Thread[]>(static_cast<std::size_t>(threads));
  block->warps.resize(static_cast<std::size_t>((threads + 31) / 32));
  for (int i = 0; i < threads; ++i) {
    Thread& thread = block->threads[static_cast<std::size_t>(i)];
    const auto number = static_cast<unsigned>(i);
    thread.thread = {number % grid.block_size.x, number / grid.block_size.x, 0};
    thread.block = index;
    thread.block_size = grid.block_size;
    thread.grid_size = grid.blocks;
    thread.shared = first_line(block->memory);
    thread.shared_bytes = grid.shared_bytes;
    Warp& warp = block->warps[static_cast<std::size_t>(i / 32)];
    if (i % 32 == 0) {
      warp.block = block.get();
      warp.threads = &thread;
    }
    ++warp.count;
    thread.warp = &warp;
    thread.lane = i % 32;
  }
  return block;
}

std::string where(const Thread& thread) {
  switch (thread.doing) {
    case Doing::runs:
      return "can go on";
    case Doing::looks_at_clock:
      return "wait for a word";
    case Doing::is_at_barrier:
      return "wait in " + std::string(thread.call) + " at barrier " + std::to_string(thread.barrier) + ", which " +
             std::to_string(thread.warp->block->barriers[thread.barrier].threads) + " threads must reach";
    case Doing::is_in_warp_call:
      return "wait for other lanes of their warps in " + std::string(thread.call);
    case Doing::awaits_kernel:
      return "wait for the kernel before";
    case Doing::has_ended:
      return "have ended";
  }
  return "";
}

}  // namespace

bool BulkCopy::step() {
  if (stage_ == 0) {
    read_.assign(from_, from_ + bytes_);
    stage_ = 1;
  } else if (stage_ == 1) {
    std::memcpy(to_, read_.data(), bytes_);
    stage_ = 2;
  }
  return is_done();
}

GridRun::GridRun(Grid grid_given, int device_given) : grid(std::move(grid_given)), device(device_given) {
  for (unsigned y = 0; y < grid.blocks.y; ++y)
    for (unsigned x = 0; x < grid.blocks.x; ++x) blocks.push_back(make_block(*this, {x, y, 0}));
  live_blocks = blocks_before_next = static_cast<int>(blocks.size());
}

std::string describe(const GridRun& run) {
  std::string name = run.grid.name;  // as the compiler writes a function: the kernel's parameter stands last
  name = name.substr(name.rfind(' ') + 1);
  if (name.ends_with(']')) name.pop_back();
  std::string text = "device " + std::to_string(run.device) + ", kernel of " + name + ":";
  for (const auto& block : run.blocks) {
    std::map<std::string, int> threads;
    for (const Warp& warp : block->warps)
      for (int i = 0; i < warp.count; ++i) ++threads[where(warp.threads[i])];
    text += "\n  block " + std::to_string(block->threads[0].block.x) + ":";
    const char* before = " ";
    for (const auto& [what, count] : threads) {
      text += before + std::to_string(count) + " threads " + what;
      before = "; ";
    }
  }
  return text;
}

}  // namespace ferry::emulated
