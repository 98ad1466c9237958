#include "exchange/checks/tensor_checks.h"

#include <fmt/format.h>

#include "exchange/checks/refuse.h"

namespace ferry {
namespace {

std::string list_of(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += (text.empty() ? "" : ", ") + std::string(to_string(dtype));
  return text;
}

}  // namespace

void refuse_call(const CheckContext& context, const std::string& text) {
  throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: {}", context.rank, text));
}

void require_dtype(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed)
    if (tensor.dtype == dtype) return;
  refuse(c, "{} has dtype {}; it must be one of: {}", name, to_string(tensor.dtype), list_of(allowed));
}

void require_host_memory(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (tensor && c.takes_host_memory && tensor.device.kind == Device::Kind::cuda)
    refuse(c, "{} is memory of {}; this exchange takes host memory", name, to_string(tensor.device));
}

void require_given(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (!tensor) refuse(c, "{} is not given", name);
  require_host_memory(c, name, tensor);
}

void require_shape(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   const std::vector<std::int64_t>& wanted) {
  bool same = tensor.rank == static_cast<int>(wanted.size());
  for (std::size_t axis = 0; same && axis < wanted.size(); ++axis)
    same = wanted[axis] < 0 || tensor.shape[axis] == wanted[axis];
  if (same) return;
  std::vector<std::string> extents;
  for (const std::int64_t extent : wanted) extents.push_back(extent < 0 ? "any" : std::to_string(extent));
  refuse(c, "{} is {}; its shape must be [{}]", name, to_string(tensor), fmt::join(extents, ", "));
}

void require_contiguous(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (!tensor.is_contiguous())
    refuse(c, "{} is not contiguous; {} must be row-major without gaps", name, to_string(tensor));
}

void require_rows(const CheckContext& c, const char* name, const ConstTensor& tensor, int columns) {
  require_shape(c, name, tensor, {-1, columns});
  if (tensor.strides[1] != 1)
    refuse(c, "{} has a column stride of {} elements; columns must be contiguous (stride 1)", name, tensor.strides[1]);
  if (tensor.shape[0] > 1 && tensor.strides[0] < columns)
    refuse(c, "{} has a row stride of {} elements; the limit is {} or more (a row's columns)", name, tensor.strides[0],
           columns);
}

void require_aligned(const CheckContext& c, const char* name, const ConstTensor& tensor, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % bytes != 0) refuse(c, "{} starts at {:#x}; its address must be a multiple of {}", name, address, bytes);
}

void require_array(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   std::initializer_list<DType> allowed, const std::vector<std::int64_t>& shape) {
  require_given(c, name, tensor);
  require_dtype(c, name, tensor, allowed);
  require_shape(c, name, tensor, shape);
  require_contiguous(c, name, tensor);
  require_aligned(c, name, tensor, size_of(tensor.dtype));
}

ConstTensor or_empty(const ConstTensor& tensor) {
  alignas(16) static constexpr std::int64_t kNowhere = 0;
  ConstTensor copy = tensor;
  if (!copy && copy.rank > 0 && copy.elements() == 0) copy.data = &kNowhere;
  return copy;
}

}  // namespace ferry
