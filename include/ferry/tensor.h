// Tensor: a view of memory that someone else owns. It never allocates, frees or copies.
//
//   ferry::Tensor a{data, ferry::DType::f32, {rows, 64}};                           // its place is unknown (Device)
//   ferry::Tensor b{data, ferry::DType::f32, {rows, 64}, ferry::Device::cuda(0)};   // Ferry takes the caller's word
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "ferry/error.h"

namespace ferry {

enum class DType : std::uint8_t { none, u8, i32, u32, i64, f16, bf16, f32, f64 };

// Bytes of one element; 0 for none.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::none:
      return 0;
    case DType::u8:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::u32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
      return 8;
  }
  return 0;
}
const char* to_string(DType dtype);

// Where memory lies, as its owner says.
//   unknown  the default: an exchange on GPUs asks the CUDA driver in each call; an exchange on CPUs takes the memory
//            for the host's
//   cpu      host memory: an exchange on GPUs refuses it
//   cuda     memory of GPU `index`, as cudaSetDevice counts: an exchange on another GPU or on CPUs refuses it. The
//            driver is not asked. If the memory lies elsewhere, the kernel faults, and no Error is thrown
// swiglu and cuda_swiglu (ferry/activation.h, ferry/cuda/activation.h) do the same.
// Managed memory (cudaMallocManaged) lies on no device: leave it unknown.
struct Device {
  enum class Kind : std::uint8_t { unknown, cpu, cuda };
  Kind kind = Kind::unknown;
  int index = 0;

  static constexpr Device cpu() { return {Kind::cpu, 0}; }
  static constexpr Device cuda(int index) { return {Kind::cuda, index}; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};
// "unknown", "cpu", "cuda:1".
std::string to_string(Device device);

inline constexpr int kMaxTensorRank = 5;

// Row-major unless strides say otherwise; strides count elements. data == nullptr means "not given".
template <class Byte>
struct BasicTensor {
  Byte* data = nullptr;
  DType dtype = DType::none;
  int rank = 0;
  std::array<std::int64_t, kMaxTensorRank> shape{};
  std::array<std::int64_t, kMaxTensorRank> strides{};
  Device device{};

  BasicTensor() = default;
  BasicTensor(Byte* memory, DType type, std::span<const std::int64_t> extents, Device where = {})
      : data(memory), dtype(type), rank(static_cast<int>(extents.size())), device(where) {
    if (rank > kMaxTensorRank)
      throw Error(ErrorKind::invalid_argument,
                  "a tensor of " + std::to_string(rank) + " axes; the limit is " + std::to_string(kMaxTensorRank));
    std::int64_t stride = 1;
    for (std::size_t axis = extents.size(); axis-- > 0;) {
      shape[axis] = extents[axis];
      strides[axis] = stride;
      stride *= extents[axis];
    }
  }
  BasicTensor(Byte* memory, DType type, std::initializer_list<std::int64_t> extents, Device where = {})
      : BasicTensor(memory, type, std::span(extents.begin(), extents.size()), where) {}
  template <class Other>
  requires(std::is_convertible_v<Other*, Byte*> && !std::is_same_v<Other, Byte>)
      BasicTensor(const BasicTensor<Other>& other)  // a mutable view is also a read-only one
      : data(other.data),
        dtype(other.dtype),
        rank(other.rank),
        shape(other.shape),
        strides(other.strides),
        device(other.device) {}

  explicit operator bool() const { return data != nullptr; }
  // The elements, of the type that the caller knows them to have: as<std::uint32_t>().
  template <class T>
  auto as() const {
    return static_cast<std::conditional_t<std::is_const_v<Byte>, const T*, T*>>(data);
  }
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) count *= shape[axis];
    return count;
  }
  bool is_contiguous() const {
    std::int64_t stride = 1;
    for (auto axis = static_cast<std::size_t>(rank); axis-- > 0;) {
      if (shape[axis] != 1 && strides[axis] != stride) return false;
      stride *= shape[axis];
    }
    return true;
  }
};

using Tensor = BasicTensor<void>;             // written by the callee
using ConstTensor = BasicTensor<const void>;  // read by the callee

// "f32 [4, 128]", for messages.
std::string to_string(const ConstTensor& tensor);

}  // namespace ferry
