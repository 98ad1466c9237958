// What a rank of the stress program decides by, and its device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace ferry::stress {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

// A hash of its own for what the host decides: the same on all ranks.
inline unsigned draw(unsigned seed, unsigned round, unsigned what) {
  unsigned x = seed * 0x9E3779B1u + round * 0x85EBCA6Bu + what * 0xC2B2AE35u;
  x = (x ^ (x >> 15)) * 0x2C1B3C6Du;
  x = (x ^ (x >> 12)) * 0x297A2D39u;
  return x ^ (x >> 15);
}

// Device memory out of one piece, freed with the segment.
class Arena {
 public:
  ~Arena() {
    cudaFree(memory_);
    cudaStreamDestroy(stream_);
  }
  Arena() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::size_t plan(std::int64_t count, std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += (static_cast<std::size_t>(count) * bytes + 511) / 256 * 256;
    return at;
  }
  void allocate() {
    check(cudaMalloc(&memory_, bytes_), "cudaMalloc");
    check(cudaMemset(memory_, 0xFF, bytes_), "cudaMemset");  // as bf16 a NaN, wherever nothing was written
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  template <class T>
  T* at(std::size_t place) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + place);
  }
  std::size_t end() const { return bytes_; }
  cudaStream_t stream() const { return stream_; }

 private:
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace ferry::stress
