// What the text of a kernel may ask of the machine that runs it: where its thread is, and everything at which another
// thread may go on. The machine is one thread of the CPU, so between two of these calls nobody else runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/emulated_gpu/types.h"

namespace ferry::emulated {

// A device thread as its own text sees it.
struct ThreadView {
  uint3 thread;
  uint3 block;
  dim3 block_size;
  dim3 grid_size;
  std::byte* shared = nullptr;  // of its block
  std::size_t shared_bytes = 0;
};
// Null on a thread that is no device thread.
inline thread_local constinit ThreadView* current = nullptr;

// A call of a warp. All lanes that `lanes` names must make the same call; returns when they have, with the values of
// all of them, which stay until the call after the next.
const std::uint64_t* meet(unsigned lanes, const char* what, std::uint64_t value);
// A barrier of `threads` threads of the block. Returns whether `value` was true in all.
bool sync(int barrier, int threads, bool value, const char* what);
// A thread that waits for another one looks at the clock. Returns the time in nanoseconds.
std::uint64_t look_at_clock();
// Around an access to a word that threads share: another thread may go on here. `changes`: others may see something
// new.
void touch_shared_word(bool changes);
// What the text tells the compiler, which does not look.
void assume(bool holds);
// After a store that others may wait for. Some threads are held back here, while those that wait look.
void show_stored_word();

// Copies that complete later. A group is what a thread committed together; `kept` groups may stay in flight.
void copy_to_shared(std::byte* to, const std::byte* from, std::size_t bytes);
void commit_copies();
void wait_for_copies(int kept);
void fence_for_bulk_copies();
void bulk_copy(std::byte* to, const std::byte* from, std::size_t bytes);
void commit_bulk_copies();
void wait_for_bulk_copies(int kept, bool until_read);

// Dependent launches.
void await_earlier_kernels();
void let_next_kernel_launch();

inline bool is_shared(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  return current != nullptr && at >= current->shared && at < current->shared + current->shared_bytes;
}

// Ends the emulated kernel with an error that the next call of the runtime returns.
[[noreturn]] void fail(const char* what);

}  // namespace ferry::emulated
