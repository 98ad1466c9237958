// Streaming copies between the threads' buffers, which together are several times the last-level cache.
#include "tool/bench/base/bench_wire.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tool/bench/base/bench_case.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ferry::app {
namespace {

constexpr std::size_t kPiece = 16 << 10;  // about a token
constexpr int kTries = 3;

void copy_whole(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void copy_pieces(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPiece) std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
}

#if defined(__SSE2__)
void copy_nontemporal(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* target = reinterpret_cast<__m128i*>(to);
  const auto* source = reinterpret_cast<const __m128i*>(from);
  for (std::size_t at = 0; at < bytes / sizeof(__m128i); at += 4) {
    const __m128i a = _mm_load_si128(source + at);
    const __m128i b = _mm_load_si128(source + at + 1);
    const __m128i c = _mm_load_si128(source + at + 2);
    const __m128i d = _mm_load_si128(source + at + 3);
    _mm_stream_si128(target + at, a);
    _mm_stream_si128(target + at + 1, b);
    _mm_stream_si128(target + at + 2, c);
    _mm_stream_si128(target + at + 3, d);
  }
  _mm_sfence();
}
#endif

// Random values in each page. A memory page that has them is the thread's own, near to it.
void fill(std::byte* memory, std::size_t bytes, int thread) {
  fill_bf16(memory, std::min(kPiece, bytes), static_cast<std::uint64_t>(thread) + 1);
  for (std::size_t at = kPiece; at < bytes; at += kPiece)
    std::memcpy(memory + at, memory, std::min(kPiece, bytes - at));
}

struct Method {
  const char* name;
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
};
constexpr Method kMethods[] = {
    {"memcpy", copy_whole},
    {"memcpy of 16 KiB", copy_pieces},
#if defined(__SSE2__)
    {"non-temporal stores", copy_nontemporal},
#endif
};

}  // namespace

std::size_t Wire::bytes_of_thread(int threads) {
  const std::size_t share = 2 * this_machine().last_level_cache / static_cast<std::size_t>(threads);
  return std::max<std::size_t>(share / kPiece * kPiece, std::size_t{8} << 20);
}

std::size_t Wire::memory_bytes(int ranks, int workers) {
  const int threads = ranks * workers;
  return 2 * static_cast<std::size_t>(threads) * bytes_of_thread(threads);
}

Wire::Wire(int ranks, int workers) : ranks_(ranks), workers_(workers), bytes_(bytes_of_thread(ranks * workers)) {
  const int threads = ranks * workers;
  for (int thread = 0; thread < threads; ++thread) {
    from_.emplace_back(bytes_);
    to_.emplace_back(bytes_);
  }
  run_threads(threads, [&](int thread) {
    const auto mine = static_cast<std::size_t>(thread);
    fill(from_[mine].data(), bytes_, thread);
    std::memset(to_[mine].data(), 1, bytes_);
  });
  double best = 0;
  for (const Method& method : kMethods) {
    const double seconds = median_seconds(method.copy);
    if (copy_ != nullptr && seconds >= best) continue;
    best = seconds;
    copy_ = method.copy;
    method_ = method.name;
  }
}

void Wire::copy_by(Copy way, int thread) const {
  const auto mine = static_cast<std::size_t>(thread);
  const std::size_t peer = (mine + static_cast<std::size_t>(workers_)) % to_.size();
  way(to_[peer].data(), from_[mine].data(), bytes_);
}

void Wire::copy(int rank) const {
  if (workers_ == 1) return copy_by(copy_, rank);
  run_threads(workers_, [&](int worker) { copy_by(copy_, rank * workers_ + worker); });
}

double Wire::median_seconds(Copy way) const {
  const int threads = ranks_ * workers_;
  StartLine line(threads);
  std::vector<std::vector<Span>> spans(static_cast<std::size_t>(threads));
  run_threads(threads, [&](int thread) {
    for (int attempt = -1; attempt < kTries; ++attempt) {  // the first one warms up
      line.wait();
      const double begin = now_seconds();
      copy_by(way, thread);
      if (attempt >= 0) spans[static_cast<std::size_t>(thread)].push_back({begin, now_seconds()});
    }
  });
  return BenchSamples{seconds_of(spans)}.at(0.5);
}

WireSpeed Wire::speed(const std::vector<double>& seconds) const {
  const int threads = ranks_ * workers_;
  const double moved = 2.0 * static_cast<double>(bytes_) * threads;
  const BenchSamples samples{seconds};
  return {moved / samples.at(0.5), method_, threads, static_cast<int>(seconds.size()),
          samples.at(0.9) / samples.at(0.1)};
}

}  // namespace ferry::app
