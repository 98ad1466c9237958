// Tensor: a view of memory that someone else owns. It never allocates, frees or copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

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

inline constexpr int kMaxTensorRank = 5;

// Row-major unless strides say otherwise; strides count elements. data == nullptr means "not given".
template <class Byte>
struct BasicTensor {
  Byte* data = nullptr;
  DType dtype = DType::none;
  int rank = 0;
  std::array<std::int64_t, kMaxTensorRank> shape{};
  std::array<std::int64_t, kMaxTensorRank> strides{};

  BasicTensor() = default;
  BasicTensor(Byte* memory, DType type, std::span<const std::int64_t> extents)
      : data(memory), dtype(type), rank(static_cast<int>(extents.size())) {
    if (rank > kMaxTensorRank)
      throw Error(ErrorKind::invalid_argument,
                  "a tensor of " + std::to_string(rank) + " axes; the limit is " + std::to_string(kMaxTensorRank));
    int axis = 0;
    for (const std::int64_t extent : extents) shape[axis++] = extent;
    std::int64_t stride = 1;
    for (axis = rank - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= shape[axis];
    }
  }
  BasicTensor(Byte* memory, DType type, std::initializer_list<std::int64_t> extents)
      : BasicTensor(memory, type, std::span(extents.begin(), extents.size())) {}
  template <class Other>
  requires(std::is_convertible_v<Other*, Byte*> && !std::is_same_v<Other, Byte>)
      BasicTensor(const BasicTensor<Other>& other)  // a mutable view is also a read-only one
      : data(other.data), dtype(other.dtype), rank(other.rank), shape(other.shape), strides(other.strides) {}

  explicit operator bool() const { return data != nullptr; }
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
    return count;
  }
  bool is_contiguous() const {
    std::int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
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
