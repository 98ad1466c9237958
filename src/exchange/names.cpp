// Names of the public enumerations, for messages.
#include <fmt/core.h>

#include "ferry/dispatch_output.h"
#include "ferry/error.h"
#include "ferry/row_order.h"
#include "ferry/shape.h"
#include "ferry/tensor.h"
#include "ferry/token_format.h"
#include "ferry/world.h"

namespace ferry {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid argument";
    case ErrorKind::out_of_order:
      return "out of order";
    case ErrorKind::peer_missing:
      return "peer missing";
    case ErrorKind::aborted:
      return "aborted";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::io:
      return "io";
    case ErrorKind::system:
      return "system";
  }
  return "unknown";
}

const char* to_string(Overflow overflow) {
  switch (overflow) {
    case Overflow::refused:
      return "refused";
    case Overflow::reported:
      return "reported";
    case Overflow::expected:
      return "expected";
  }
  return "unknown";
}

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::none:
      return "no operation";
    case Operation::dispatch:
      return "dispatch";
    case Operation::combine:
      return "combine";
    case Operation::set_up:
      return "set-up";
  }
  return "unknown";
}

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::none:
      return "no phase";
    case Phase::consumed:
      return "waiting for the buffers of an earlier round";
    case Phase::routing:
      return "waiting for the routing table";
    case Phase::message:
      return "waiting for a token";
    case Phase::result:
      return "waiting for an expert's result";
    case Phase::dispatching:
      return "waiting for the same dispatch";
    case Phase::summed:
      return "waiting for the sums of an earlier combine";
    case Phase::handle:
      return "comparing handles";
    case Phase::weights:
      return "waiting for the weights of a combine";
  }
  return "unknown";
}

const char* to_string(WorldKind kind) {
  switch (kind) {
    case WorldKind::threads:
      return "threads";
    case WorldKind::shmem:
      return "shmem";
    case WorldKind::cuda:
      return "cuda";
    case WorldKind::cuda_processes:
      return "cuda_processes";
    case WorldKind::nvshmem:
      return "nvshmem";
    case WorldKind::processes:
      return "processes";
    case WorldKind::other:
      return "other";
  }
  return "unknown";
}

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::none:
      return "none";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::i64:
      return "i64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
  }
  return "unknown";
}

const char* to_string(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::none:
      return "none";
    case ScaleLayout::row_major:
      return "row_major";
    case ScaleLayout::transposed:
      return "transposed";
    case ScaleLayout::tiled:
      return "tiled";
  }
  return "unknown";
}

const char* to_string(RowOrder order) {
  switch (order) {
    case RowOrder::by_expert:
      return "by_expert";
    case RowOrder::by_source:
      return "by_source";
    case RowOrder::padded:
      return "padded";
    case RowOrder::in_place:
      return "in_place";
  }
  return "unknown";
}

std::string to_string(RowOrders orders) {
  std::string text;
  for (int i = 0; i < kRowOrders; ++i) {
    const auto order = static_cast<RowOrder>(i);
    if (orders.has(order)) text += std::string(text.empty() ? "" : ", ") + to_string(order);
  }
  return text.empty() ? "none" : text;
}

std::string to_string(Device device) {
  switch (device.kind) {
    case Device::Kind::unknown:
      return "unknown";
    case Device::Kind::cpu:
      return "cpu";
    case Device::Kind::cuda:
      return fmt::format("cuda:{}", device.index);
  }
  return "unknown";
}

std::string to_string(const ConstTensor& tensor) {
  std::string text = fmt::format("{} [", to_string(tensor.dtype));
  for (int axis = 0; axis < tensor.rank; ++axis)
    text += fmt::format("{}{}", axis == 0 ? "" : ", ", tensor.shape[static_cast<std::size_t>(axis)]);
  return text + "]";
}

std::string to_string(const Shape& s) {
  return fmt::format("ranks={} experts={} top_k={} max_tokens={} hidden={}", s.ranks, s.experts, s.top_k, s.max_tokens,
                     s.hidden);
}

void require_valid(const Shape& shape) {
  if (const char* reason = why_invalid(shape))
    throw Error(ErrorKind::invalid_argument, fmt::format("impossible shape: {} (got {})", reason, to_string(shape)));
}

}  // namespace ferry
