#include "support/emulated_gpu/device_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/emulated_gpu/scheduler.h"

namespace ferry::emulated {
namespace {

bool is_same(const char* one, const char* other) { return one == other || std::strcmp(one, other) == 0; }

}  // namespace

const std::uint64_t* meet(unsigned lanes, const char* what, std::uint64_t value) {
  Machine& machine = Machine::get();
  Thread& thread = machine.here();
  WarpCall& call = thread.warp->call;
  const unsigned own = 1u << thread.lane;
  if (call.arrived == 0) {
    call.lanes = lanes;
    call.what = what;
    call.all_fenced = true;
  }
  if (call.lanes != lanes || !is_same(call.what, what))
    machine.fail(std::string("lanes of a warp are in different calls: ") + call.what + " and " + what);
  if ((lanes & own) == 0) machine.fail(std::string(what) + " by a lane that the call does not name");
  call.values[call.turn][thread.lane] = value;
  call.all_fenced = call.all_fenced && thread.has_fenced;
  call.arrived |= own;
  const std::uint64_t* values = call.values[call.turn];
  if (call.arrived != lanes) {
    machine.suspend(thread, Doing::is_in_warp_call, what);
    return values;
  }
  machine.advance();
  call.arrived = 0;
  call.turn ^= 1;
  const bool is_barrier = is_same(what, "__syncwarp");
  for (int i = 0; i < thread.warp->count; ++i) {
    if ((lanes >> i & 1u) == 0) continue;
    Thread& each = thread.warp->threads[i];
    if (is_barrier) {
      each.all_fenced = call.all_fenced;
      each.has_fenced = false;
    }
    if (i != thread.lane) machine.make_ready(each);
  }
  return values;
}

bool sync(int barrier, int threads, bool value, const char* what) {
  Machine& machine = Machine::get();
  Thread& thread = machine.here();
  Barrier& reached = thread.warp->block->barriers[barrier];
  if (reached.waiting.empty()) {
    reached.threads = threads;
    reached.what = what;
    reached.all = reached.all_fenced = true;
  }
  if (reached.threads != threads || !is_same(reached.what, what))
    machine.fail("threads meet at barrier " + std::to_string(barrier) + " in " + reached.what + " of " +
                 std::to_string(reached.threads) + " threads and in " + what + " of " + std::to_string(threads));
  reached.all = reached.all && value;
  reached.all_fenced = reached.all_fenced && thread.has_fenced;
  reached.waiting.push_back(&thread);
  thread.barrier = barrier;
  const int turn = reached.turn;
  if (static_cast<int>(reached.waiting.size()) < threads) {
    machine.suspend(thread, Doing::is_at_barrier, what);
    return reached.answers[turn];
  }
  machine.advance();
  reached.answers[turn] = reached.all;
  reached.turn ^= 1;
  for (Thread* each : std::exchange(reached.waiting, {})) {
    each->all_fenced = reached.all_fenced;
    each->has_fenced = false;
    if (each != &thread) machine.make_ready(*each);
  }
  return reached.answers[turn];
}

std::uint64_t look_at_clock() {
  Machine& machine = Machine::get();
  machine.suspend(machine.here(), Doing::looks_at_clock, "");
  return machine.now();
}

void touch_shared_word(bool changes) {
  if (current == nullptr) return;
  Machine& machine = Machine::get();
  if (changes) machine.advance();
  if (machine.draw(machine.settings().preempts_one_in)) machine.suspend(machine.here(), Doing::runs, "");
}

void assume(bool holds) {
  if (!holds) Machine::get().fail("__builtin_assume of what does not hold: memory of another kind");
}

void show_stored_word() {
  if (current == nullptr) return;
  Machine& machine = Machine::get();
  if (machine.draw(machine.settings().holds_back_one_in) || machine.is_slow(*machine.here().warp))
    machine.hold_back(machine.here());
}

void copy_to_shared(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (Machine::get().draw(2))
    std::memcpy(to, from, bytes);
  else
    Machine::get().here().to_shared.open.push_back({to, from, bytes});
}
void commit_copies() { Machine::get().here().to_shared.commit(); }
void wait_for_copies(int kept) {
  auto& groups = Machine::get().here().to_shared.groups;
  for (; groups.size() > static_cast<std::size_t>(kept); groups.erase(groups.begin()))
    for (const SharedCopy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
}

void fence_for_bulk_copies() { Machine::get().here().has_fenced = true; }

void bulk_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  Machine& machine = Machine::get();
  Thread& thread = machine.here();
  const auto misaligned = (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % 16;
  if (misaligned != 0) machine.fail("a bulk copy needs addresses and bytes that are multiples of 16");
  if (!is_shared(from) || !is_shared(from + bytes - 1)) machine.fail("a bulk copy reads beyond shared memory");
  if (!thread.all_fenced)
    machine.fail("a bulk copy reads shared memory that was not fenced by every thread before the barrier (I12)");
  auto copy = std::make_shared<BulkCopy>(to, from, bytes);
  thread.bulk.open.push_back(copy);
  machine.add_late(std::move(copy));
}
void commit_bulk_copies() { Machine::get().here().bulk.commit(); }
void wait_for_bulk_copies(int kept, bool until_read) {
  auto& groups = Machine::get().here().bulk.groups;
  for (std::size_t i = 0; i + static_cast<std::size_t>(kept) < groups.size(); ++i)
    for (const auto& copy : groups[i])
      while (!(until_read ? copy->has_read() : copy->is_done())) copy->step();
  Machine::get().advance();
  while (groups.size() > static_cast<std::size_t>(kept) &&
         std::all_of(groups.front().begin(), groups.front().end(), [](const auto& copy) { return copy->is_done(); }))
    groups.erase(groups.begin());
}

void await_earlier_kernels() {
  Machine& machine = Machine::get();
  Thread& thread = machine.here();
  if (!thread.warp->block->grid->is_first) machine.suspend(thread, Doing::awaits_kernel, "");
}
void let_next_kernel_launch() {
  Machine& machine = Machine::get();
  machine.let_next_launch(*machine.here().warp->block);
}

void fail(const char* what) { Machine::get().fail(what); }

}  // namespace ferry::emulated
