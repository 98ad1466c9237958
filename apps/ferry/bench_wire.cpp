// Streaming copies between the threads' buffers, which together are several times the last-level cache.
#include "ferry/bench_wire.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ferry/bench_case.h"
#include "ferry/bench_machine.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ferry::app {
namespace {

constexpr std::size_t kPiece = 16 << 10;  // about a token
constexpr int kRepetitions = 9;

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

void copy_whole(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void copy_pieces(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPiece) std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
}

#if defined(__SSE2__)
void copy_past_the_cache(std::byte* to, const std::byte* from, std::size_t bytes) {
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

struct Method {
  const char* name;
  Copy copy;
};
constexpr Method kMethods[] = {
    {"memcpy", copy_whole},
    {"memcpy of 16 KiB", copy_pieces},
#if defined(__SSE2__)
    {"non-temporal stores", copy_past_the_cache},
#endif
};

double median_seconds(Copy copy, const std::vector<BenchBuffer>& from, const std::vector<BenchBuffer>& to) {
  const auto threads = static_cast<int>(from.size());
  StartLine line(threads);
  std::vector<std::vector<double>> taken(from.size(), std::vector<double>(kRepetitions));
  run_threads(threads, [&](int thread) {
    const auto mine = static_cast<std::size_t>(thread);
    const BenchBuffer& peer = to[(mine + 1) % to.size()];
    for (int repetition = -1; repetition < kRepetitions; ++repetition) {  // the first one warms up
      line.wait();
      const auto start = std::chrono::steady_clock::now();
      copy(peer.data(), from[mine].data(), peer.bytes());
      if (repetition >= 0) taken[mine][static_cast<std::size_t>(repetition)] = seconds_since(start);
    }
  });
  BenchSamples slowest;
  for (std::size_t repetition = 0; repetition < kRepetitions; ++repetition) {
    double seconds = 0;
    for (const auto& times : taken) seconds = std::max(seconds, times[repetition]);
    slowest.seconds.push_back(seconds);
  }
  return slowest.at(0.5);
}

}  // namespace

WireSpeed measure_wire(int threads) {
  const std::size_t share = 4 * this_machine().last_level_cache / static_cast<std::size_t>(threads);
  const std::size_t bytes = std::max<std::size_t>(share / kPiece * kPiece, std::size_t{8} << 20);
  std::vector<BenchBuffer> from;
  std::vector<BenchBuffer> to;
  for (int thread = 0; thread < threads; ++thread) {
    from.emplace_back(bytes);
    to.emplace_back(bytes);
    fill_bf16(from.back().data(), bytes, static_cast<std::uint64_t>(thread) + 1);
    std::memset(to.back().data(), 1, bytes);
  }
  WireSpeed best{0, "", threads};
  for (const Method& method : kMethods) {
    const double speed = 2.0 * static_cast<double>(bytes) * threads / median_seconds(method.copy, from, to);
    if (speed > best.bytes_per_second) best = {speed, method.name, threads};
  }
  return best;
}

}  // namespace ferry::app
