// Memory: how much this machine can still give, and arrays that take pages only where they are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ferry::app {

// Bytes that this process can still use: the least of what the system, its cgroup and its own limits leave.
std::uint64_t memory_left();
std::uint64_t total_memory();

struct MemoryNeed {
  std::string what;  // "gate-up weights"
  std::uint64_t bytes;
};
// Throws Error(system) that lists the largest needs when their sum is more than `available`.
void require_memory(const std::vector<MemoryNeed>& needs, std::uint64_t available);

// Zeroed memory. Pages that are never touched take no room: a buffer sized for the worst case costs what is used.
class Pages {
 public:
  Pages() = default;
  explicit Pages(std::size_t bytes);  // throws Error(system)
  ~Pages();
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ferry::app
