// The machine behind emulated GPUs, which are for tests: src/cuda and the text of the kernels are compiled by the
// host's compiler, with CUDA's keywords and the runtime given by this folder, and the machine runs the threads of all
// kernels of all devices as fibers of one thread of the CPU.
//   - Why the whole backend, and not each step beside that of CPUs: the conformance suite then compares every byte of a
//     round, and the launch policy, the roles of blocks and the order of kernels are tested with the steps.
//   - A seed decides who goes on at every call of device_calls.h: barriers, calls of a warp, waits, and accesses to
//     words that threads share. Bulk copies read and write later, at times that the seed chooses.
//   - Threads that wait for each other are an error at once, which says where each of them is. So are lanes of a warp
//     in different calls, and a bulk copy of shared memory that was not fenced.
//   - A kernel that was launched before it was loaded is an error: CUDA would wait there for all kernels of the device.
//   - Stores are seen in the order of the program. So a release that became relaxed is not found here, but on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "support/emulated_gpu/types.h"

namespace ferry::emulated {

struct MachineSettings {
  std::uint64_t seed = 1;
  int preempts_one_in = 24;   // accesses to shared words, before and after which another thread may go on
  int holds_back_one_in = 8;  // stores of such words, after which the thread and its warp pause
  // Nobody but the kernels that are enqueued can end a wait. Then a standstill ends every wait at once, as its deadline
  // would, and standstill() says where all threads were.
  bool hosts_are_idle = false;
  // A device whose threads go on only where no other can, and pause at each store of a shared word; -1: none.
  int slow_device = -1;
  // What is late when no kernel runs any more stays so. Else it has arrived by then.
  bool late_stays = false;
};

// A kernel: `body` is run by every thread of every block.
struct Grid {
  dim3 blocks;
  dim3 block_size;
  std::size_t shared_bytes = 0;
  bool overlaps = false;  // it may begin before the kernel ahead of it in its stream has ended
  const char* name = "kernel";
  std::function<void()> body;
};

// Operations that run one after the other. A stream must not be destroyed before it is idle.
struct Stream;
std::shared_ptr<Stream> make_stream(int device);
int device_of(const Stream& stream);

void enqueue(Stream& stream, Grid grid);
void enqueue(Stream& stream, std::function<void()> work);
// Both return false where a kernel failed: then nothing more runs until reset().
bool synchronize(Stream& stream);
bool synchronize_device(int device);
bool is_idle(const Stream& stream);
bool is_device_idle(int device);

// Ends all kernels, forgets the failure, and sets the seed. No stream may be in use.
void reset(const MachineSettings& settings);
// What went wrong in a kernel: a collective call that some of its threads did not make, threads that wait for each
// other, a bulk copy without its fence. Empty: nothing.
std::string failure();
// Describes the first standstill since reset(), where hosts_are_idle. Empty: there was none.
std::string standstill();

// While it lives, the machine runs nothing. Kernels that are enqueued meanwhile begin together.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

// Something that happens later, at a time that the machine chooses: a copy or a put on its way. For device threads.
class Late {
 public:
  virtual ~Late() = default;
  // Goes on by one step. True: it is done.
  virtual bool step() = 0;
};
void add_late(std::shared_ptr<Late> late);

}  // namespace ferry::emulated
