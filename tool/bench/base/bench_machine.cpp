// Buffers, threads and facts of the machine for the benchmarks.
#include "tool/bench/base/bench_machine.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "cpu/fabric/host_waits.h"
#include "ferry/error.h"

namespace ferry::app {

// A benchmark's thread that fails breaks the line, so this only bounds a wait for one that hangs.
constexpr std::chrono::minutes kLongestWait{10};

BenchBuffer::BenchBuffer(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 64)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorKind::system, fmt::format("the system refuses {} bytes for a benchmark buffer", bytes_));
  data_ = static_cast<std::byte*>(memory);
  madvise(memory, bytes_, MADV_HUGEPAGE);  // a system without huge pages refuses, and works all the same
}

BenchBuffer::~BenchBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

BenchBuffer::BenchBuffer(BenchBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

BenchBuffer& BenchBuffer::operator=(BenchBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void fill_bf16(std::byte* memory, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (std::size_t at = 0; at < bytes; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    // Sign, the three low exponent bits and the mantissa are random; the exponent stays between 2^-7 and 1.
    const std::uint64_t values = (state & 0x83FF83FF83FF83FFu) | 0x3C003C003C003C00u;
    std::memcpy(memory + at, &values, std::min<std::size_t>(8, bytes - at));
  }
}

bool StartLine::wait() {
  const Epoch next = load_acquire(generation_) + 1;
  if (fetch_add_acq_rel(arrived_, 1) + 1 == threads_) {
    store_release(arrived_, 0);
    store_release(generation_, next);
  } else {
    cpu::HostPacer pacer(kLongestWait);
    const auto broken = [this] { return load_acquire(broken_) != 0; };
    if (wait_at_least(generation_, next, broken, pacer) != Waited::arrived) return false;
  }
  return load_acquire(broken_) == 0;
}

void run_threads(int threads, const std::function<void(int thread)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> pool;
  for (int thread = 0; thread < threads; ++thread)
    pool.emplace_back([&, thread] {
      try {
        body(thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& thread : pool) thread.join();
  if (first) std::rethrow_exception(first);
}

std::vector<double> seconds_of(const std::vector<std::vector<Span>>& spans) {
  std::vector<double> seconds;
  for (std::size_t index = 0; index < spans[0].size(); ++index) {
    Span whole = spans[0][index];
    for (const std::vector<Span>& of_rank : spans)
      whole = {std::min(whole.begin, of_rank[index].begin), std::max(whole.end, of_rank[index].end)};
    seconds.push_back(whole.end - whole.begin);
  }
  return seconds;
}

namespace {

// The value of the first line "name ... : value" of a file of /proc; empty where there is none.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    const std::size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return {};
}

std::size_t meminfo_bytes(const std::string& name) {
  const std::string value = proc_value("/proc/meminfo", name);
  return value.empty() ? 0 : std::stoull(value) * 1024;
}

// The kernel's word; sysconf reports the sum over the sockets on some processors.
std::size_t last_level_cache() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");  // "32768K"
  std::size_t kibibytes = 0;
  if (file >> kibibytes && kibibytes > 0) return kibibytes << 10;
  return std::size_t{32} << 20;
}

Hardware read_machine() {
  Hardware machine;
  machine.cpu = proc_value("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown CPU";
  machine.cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
  machine.last_level_cache = last_level_cache();
  machine.memory = meminfo_bytes("MemTotal");
  utsname name{};
  if (uname(&name) == 0) machine.system = fmt::format("{} {}", name.sysname, name.release);
  return machine;
}

Hardware& machine_read() {
  static Hardware machine = read_machine();
  return machine;
}

}  // namespace

const Hardware& this_machine() { return machine_read(); }
void set_last_level_cache(std::size_t bytes) { machine_read().last_level_cache = bytes; }

int input_sets_for(double bytes) {
  constexpr double kMostInputSets = 64;
  const double wanted = 2.0 * static_cast<double>(this_machine().last_level_cache) / std::max(bytes, 1.0);
  return static_cast<int>(std::clamp(std::ceil(wanted), 2.0, kMostInputSets));
}

}  // namespace ferry::app
