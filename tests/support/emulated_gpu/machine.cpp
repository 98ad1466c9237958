#include "support/emulated_gpu/machine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "support/emulated_gpu/scheduler.h"

namespace ferry::emulated {
namespace {

constexpr int kStepsOfTurn = 256;
constexpr std::uint64_t kTick = 1'000'000;              // ns of a pause in which a host may do something
constexpr std::uint64_t kLongTime = 3'600'000'000'000;  // ns, longer than any deadline
constexpr int kMostStandstills = 10'000;

}  // namespace

Machine::~Machine() {
  {
    const std::lock_guard lock(guard_);
    stops_ = true;
  }
  for_machine_.notify_all();
  thread_.join();
}

// ---- for hosts

void Machine::enqueue(Stream& stream, Operation operation) {
  {
    const std::lock_guard lock(guard_);
    if (!failure_.empty()) return;
    stream.pending.push_back(std::move(operation));
    if (!stream.is_active) active_.push_back(&stream);
    stream.is_active = true;
  }
  for_machine_.notify_all();
}

bool Machine::has_active_of(int device) const {
  return std::any_of(active_.begin(), active_.end(), [&](const Stream* stream) { return stream->device == device; });
}

void Machine::reset(const MachineSettings& settings) {
  const std::lock_guard lock(guard_);
  settings_ = settings;
  late_.clear();  // the machine's thread has nothing to run
  failure_.clear();
  standstill_.clear();
  standstills_ = 0;
  random_ = 0x9E3779B97F4A7C15ull ^ (settings.seed * 0xD1342543DE82EF95ull + 1);
}

void Machine::add_hold(int count) {
  {
    const std::lock_guard lock(guard_);
    holds_ += count;
  }
  for_machine_.notify_all();
}

std::string Machine::failure() {
  const std::lock_guard lock(guard_);
  return failure_;
}
std::string Machine::standstill() {
  const std::lock_guard lock(guard_);
  return standstill_;
}

// ---- the machine's thread

void Machine::work() {
  std::unique_lock lock(guard_);
  while (true) {
    for_machine_.wait(lock, [&] { return stops_ || (holds_ == 0 && !active_.empty()); });
    if (stops_) break;
    start_operations();
    if (active_.empty()) continue;
    lock.unlock();
    const Turn turn = take_turn();
    lock.lock();
    if (failing_.empty() && turn == Turn::stands_still) stand_still(lock);
    if (!failing_.empty()) {
      abandon_all();
      failure_ = std::exchange(failing_, {});
      for_hosts_.notify_all();
    }
  }
  abandon_all();
}

// Begins and ends whatever may, in the order of the streams.
void Machine::start_operations() {
  a_kernel_ended_ = false;
  bool anything = false;
  for (Stream* stream : active_)
    while (start_one(*stream)) anything = true;
  std::erase_if(active_, [](Stream* stream) {
    if (stream->is_idle()) stream->is_active = false;
    return !stream->is_active;
  });
  while (active_.empty() && !late_.empty() && !settings_.late_stays) step_late();
  if (anything) for_hosts_.notify_all();
}

bool Machine::start_one(Stream& stream) {
  if (!stream.running.empty() && stream.running.front()->live_blocks == 0) {
    end_first(stream);
    return true;
  }
  if (stream.pending.empty()) return false;
  Operation& next = stream.pending.front();
  const bool may_overlap = next.kernel != nullptr && next.kernel->grid.overlaps;
  if (!stream.running.empty() && !(may_overlap && stream.running.back()->blocks_before_next == 0)) return false;
  Operation operation = std::move(next);
  stream.pending.pop_front();
  if (operation.kernel == nullptr) {
    operation.work();
    advance();
    return true;
  }
  operation.kernel->is_first = stream.running.empty();
  stream.running.push_back(std::move(operation.kernel));
  begin(*stream.running.back());
  return true;
}

void Machine::begin(GridRun& run) {
  for (const auto& block : run.blocks)
    for (Warp& warp : block->warps)
      for (int i = 0; i < warp.count; ++i) {
        warp.threads[i].fiber.start(stacks_, &Machine::thread_body, &warp.threads[i]);
        make_ready(warp.threads[i]);
      }
}

void Machine::end_first(Stream& stream) {
  stream.running.pop_front();
  if (stream.running.empty()) return;
  GridRun& next = *stream.running.front();
  next.is_first = true;
  for (const auto& block : next.blocks)
    for (Warp& warp : block->warps)
      for (int i = 0; i < warp.count; ++i)
        if (warp.threads[i].doing == Doing::awaits_kernel) make_ready(warp.threads[i]);
}

Machine::Turn Machine::take_turn() {
  for (int i = 0; i < kStepsOfTurn && !a_kernel_ended_ && failing_.empty(); ++i) {
    if (ready_.empty() && !wake_all()) return Turn::stands_still;
    if (!ready_.empty()) step();
    if (draw(8)) wake_one();
    if (draw(8)) step_late();
  }
  return Turn::goes_on;
}

// Mostly one of the warps that came last: they are often of one block, whose memory is in the cache of the CPU.
std::size_t Machine::choose_warp() {
  constexpr std::size_t kNewest = 16;
  const std::size_t count = ready_.size();
  const std::size_t among = held_back_ != nullptr || draw(16) || count < kNewest ? count : kNewest;
  std::size_t place = count - 1 - random() % among;
  if (held_back_ != nullptr && ready_[place] == held_back_ && count > 1) place = (place + 1) % count;
  if (held_back_ != nullptr && --held_steps_ <= 0) held_back_ = nullptr;
  return settings_.slow_device >= 0 && is_slow(*ready_[place]) ? other_than_slow(place) : place;
}
// Of the warps from this one on.
std::size_t Machine::other_than_slow(std::size_t place) const {
  for (std::size_t i = 0; i < ready_.size(); ++i)
    if (const std::size_t other = (place + i) % ready_.size(); !is_slow(*ready_[other])) return other;
  return place;
}

// What the rest of the warp has yet to store is missing where others look too early.
void Machine::hold_back(Thread& thread) {
  constexpr std::uint64_t kMostSteps = 64;
  held_back_ = thread.warp;
  held_steps_ = static_cast<int>(random() % kMostSteps);
  for (Thread* each : std::exchange(looking_, {})) make_ready(*each);
  suspend(thread, Doing::runs, "");
}

// What the switch to this lane will read. Other warps have pushed it out of the cache.
void Machine::fetch_ahead(const Warp& warp, unsigned lane) {
  constexpr std::ptrdiff_t kLine = 64;
  constexpr int kLines = 6;
  __builtin_prefetch(static_cast<const void*>(&warp.threads[lane].warp), 1);
  for (int i = -2; i < kLines - 2; ++i) __builtin_prefetch(warp.suspended_at[lane] + i * kLine, 1);
}

// Runs the lanes of a warp, each until it waits for another thread.
void Machine::step() {
  const std::size_t place = choose_warp();
  Warp& warp = *ready_[place];
  for (int round = 0; round < 32 && warp.ready != 0 && (round == 0 || held_back_ != &warp); ++round) {
    const unsigned lanes = warp.ready;
    const auto first = static_cast<unsigned>(random() % 32);
    const unsigned direction = draw(2) ? 1u : 31u;
    for (unsigned i = 0; i < 32 && failing_.empty() && held_back_ != &warp; ++i) {
      const unsigned lane = (first + i * direction) % 32;
      if (const unsigned next = (lane + direction) % 32; (lanes >> next & 1u) != 0) fetch_ahead(warp, next);
      if ((lanes & warp.ready) >> lane & 1u) run(warp.threads[lane]);
    }
  }
  if (warp.ready != 0) return;
  warp.is_listed = false;
  ready_[place] = ready_.back();
  ready_.pop_back();
}

void Machine::run(Thread& thread) {
  thread.warp->ready &= ~(1u << thread.lane);
  current = &thread;
  thread.fiber.resume();
  current = nullptr;
  if (thread.doing == Doing::has_ended) end(thread);
}

void Machine::make_ready(Thread& thread) {
  thread.doing = Doing::runs;
  Warp& warp = *thread.warp;
  warp.ready |= 1u << thread.lane;
  if (!warp.is_listed) ready_.push_back(&warp);
  warp.is_listed = true;
}

void Machine::wake_one() {
  if (looking_.empty()) return;
  const std::size_t place = random() % looking_.size();
  make_ready(*std::exchange(looking_[place], looking_.back()));
  looking_.pop_back();
}

// False: nothing has happened since all threads that wait looked last. They look twice: one that wakes from its sleep
// may read the clock before it looks at its word.
bool Machine::wake_all() {
  if (progress_ == seen_progress_ && !late_.empty()) {
    step_late();
    return true;
  }
  if (progress_ == seen_progress_ && has_looked_twice_) return false;
  has_looked_twice_ = progress_ == seen_progress_;
  seen_progress_ = progress_;
  for (Thread* thread : std::exchange(looking_, {})) make_ready(*thread);
  return true;
}

void Machine::step_late() {
  if (late_.empty()) return;
  const std::size_t place = random() % late_.size();
  const std::shared_ptr<Late> late = late_[place];
  advance();
  if (!late->step()) return;
  late_[place] = late_.back();
  late_.pop_back();
}

void Machine::stand_still(std::unique_lock<std::mutex>& lock) {
  const bool someone_waits = !looking_.empty();
  const bool all_ended = std::all_of(active_.begin(), active_.end(), [](const Stream* stream) {
    return std::all_of(stream->running.begin(), stream->running.end(),
                       [](const auto& run) { return run->live_blocks == 0; });
  });
  if (all_ended) return;
  if (!someone_waits || ++standstills_ > kMostStandstills) {
    failing_ = "threads wait for each other\n" + describe_all();
    return;
  }
  if (settings_.hosts_are_idle) {
    if (standstill_.empty()) standstill_ = describe_all();
    now_ns_ += kLongTime;
  } else {
    standstills_ = 0;
    for_machine_.wait_for(lock, std::chrono::nanoseconds(kTick));
    now_ns_ += kTick;
  }
  advance();
}

std::string Machine::describe_all() const {
  std::string text;
  for (const Stream* stream : active_)
    for (const auto& run : stream->running) text += describe(*run) + "\n";
  return text;
}

void Machine::abandon_all() {
  abandons_ = true;
  for (Stream* stream : active_) {
    for (const auto& run : stream->running)
      for (const auto& block : run->blocks)
        for (Warp& warp : block->warps)
          for (int i = 0; i < warp.count; ++i)
            while (warp.threads[i].doing != Doing::has_ended) {
              current = &warp.threads[i];
              warp.threads[i].fiber.resume();
              current = nullptr;
            }
    stream->running.clear();
    stream->pending.clear();
    stream->is_active = false;
  }
  abandons_ = false;
  active_.clear();
  ready_.clear();
  held_back_ = nullptr;
  looking_.clear();
  late_.clear();
}

// ---- device threads

void Machine::thread_body(void* argument) {
  Machine& machine = get();
  auto& thread = *static_cast<Thread*>(argument);
  try {
    if (!machine.abandons_) thread.warp->block->grid->grid.body();
    for (const auto& group : thread.bulk.groups)
      for (const auto& copy : group)
        if (!copy->is_done() && !machine.abandons_) machine.fail("a thread ended before its bulk copies were complete");
  } catch (const Abandoned&) {
  } catch (const std::exception& error) {
    machine.failing_ = error.what();
  }
  thread.doing = Doing::has_ended;
}

void Machine::end(Thread& thread) {
  advance();
  Block& block = *thread.warp->block;
  if (--block.live != 0) return;
  let_next_launch(block);
  if (--block.grid->live_blocks == 0) a_kernel_ended_ = true;
}

void Machine::let_next_launch(Block& block) {
  if (std::exchange(block.lets_next_launch, true)) return;
  if (--block.grid->blocks_before_next == 0) a_kernel_ended_ = true;
}

void Machine::fail(std::string what) {
  const Thread& thread = here();
  if (failing_.empty())
    failing_ = std::move(what) + " (block " + std::to_string(thread.block.x) + ", thread " +
               std::to_string(thread.thread.x) + ")\n" + describe(*thread.warp->block->grid);
  throw Abandoned{};
}

// ---- for hosts (machine.h)

std::shared_ptr<Stream> make_stream(int device) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  return stream;
}
int device_of(const Stream& stream) { return stream.device; }

void enqueue(Stream& stream, Grid grid) {
  const int device = stream.device;
  Machine::get().enqueue(stream, {std::make_unique<GridRun>(std::move(grid), device), {}});
}
void enqueue(Stream& stream, std::function<void()> work) { Machine::get().enqueue(stream, {nullptr, std::move(work)}); }
bool synchronize(Stream& stream) {
  return Machine::get().wait_until([&] { return stream.is_idle(); });
}
bool synchronize_device(int device) {
  return Machine::get().wait_until([device] { return !Machine::get().has_active_of(device); });
}
bool is_idle(const Stream& stream) { return Machine::get().is_idle(stream); }
bool is_device_idle(int device) { return Machine::get().is_device_idle(device); }
void reset(const MachineSettings& settings) { Machine::get().reset(settings); }
std::string failure() { return Machine::get().failure(); }
std::string standstill() { return Machine::get().standstill(); }
Hold::Hold() { Machine::get().add_hold(1); }
Hold::~Hold() { Machine::get().add_hold(-1); }
void add_late(std::shared_ptr<Late> late) { Machine::get().add_late(std::move(late)); }

}  // namespace ferry::emulated
