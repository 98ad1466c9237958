// The part of the module about GPUs, in builds with and without them.
#include "python/src/cuda/cuda_parts.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "python/src/arrays/arrays.h"
#include "python/src/arrays/exchange_api.h"
#include "python/src/base/parts.h"
#include "python/src/exchange/options.h"
#include "python/src/world/process_world.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {
namespace {

template <class View>
void require_on_gpu(const View& view, const char* name) {
  if (view.device.kind == Device::Kind::cuda && view.is_contiguous()) return;
  throw Error(ErrorKind::invalid_argument, std::string(name) + " is " + to_string(ConstTensor(view)) + " on " +
                                               to_string(view.device) + "; it must be contiguous and on a GPU");
}

std::unique_ptr<PyWorld> cuda_process_world(const ProcessPlace& place, int device, bool share_gpus,
                                            const std::optional<nb::callable>& gather,
                                            const std::optional<double>& deadline) {
  const int gpu = gpu_of_process(place, device);
  const auto make = [gpu, share_gpus](const ProcessPlace& at, std::chrono::milliseconds limit) {
    return gpu_process_world(at, gpu, share_gpus, limit);
  };
  return open_process_world(make, place, gather, deadline, Device::cuda(gpu));
}

template <class Element>
nb::object host_copy(const ConstTensor& tensor, std::uintptr_t stream) {
  std::size_t shape[kMaxTensorRank];
  for (int axis = 0; axis < tensor.rank; ++axis) shape[axis] = static_cast<std::size_t>(tensor.shape[axis]);
  auto* const memory = new Element[static_cast<std::size_t>(tensor.elements()) + 1];
  const nb::capsule owner(memory, [](void* held) noexcept { delete[] static_cast<Element*>(held); });
  {
    const nb::gil_scoped_release without_gil;
    copy_to_host(tensor, memory, stream);
  }
  return nb::cast(nb::ndarray<nb::numpy, Element>(memory, static_cast<std::size_t>(tensor.rank), shape, owner));
}

// numpy's copy of an array on a GPU; bf16 as its bits. Waits for the stream.
nb::object to_host(nb::handle array, std::uintptr_t stream) {
  Arrays arrays;
  const ConstTensor tensor = arrays.read(array, "array");
  require_on_gpu(tensor, "array");
  switch (tensor.dtype) {
    case DType::u8:
      return host_copy<std::uint8_t>(tensor, stream);
    case DType::i32:
      return host_copy<std::int32_t>(tensor, stream);
    case DType::u32:
      return host_copy<std::uint32_t>(tensor, stream);
    case DType::i64:
      return host_copy<std::int64_t>(tensor, stream);
    case DType::f32:
      return host_copy<float>(tensor, stream);
    case DType::f64:
      return host_copy<double>(tensor, stream);
    case DType::f16:
    case DType::bf16:
    case DType::none:
      return host_copy<std::uint16_t>(tensor, stream);
  }
  return nb::none();
}

void clear(nb::handle array, std::uintptr_t stream) {
  Arrays arrays;
  const Tensor tensor = arrays.fill(array, "array");
  require_on_gpu(tensor, "array");
  const nb::gil_scoped_release without_gil;
  clear_on_gpu(tensor, stream);
}

}  // namespace

void add_cuda(nb::module_& module) {
  module.def("num_cuda_devices", &cuda_devices);
  module.def("make_cuda_worlds", &cuda_thread_worlds, "devices"_a, "staged"_a);
  module.def("make_cuda_process_world", &cuda_process_world, "place"_a, "device"_a, "share_gpus"_a,
             "all_gather"_a.none(), "deadline"_a.none());
  module.def("to_host", &to_host, "array"_a, "stream"_a);
  module.def("are_plain_tensors", &are_plain_tensors, "device_type"_a, "device"_a, "read"_a.none(),
             "filled"_a.none() = nb::none());
  module.def("torch_stream", &torch_stream, "device"_a);
  module.def("clear", &clear, "array"_a, "stream"_a);
  module.def(
      "cuda_state_bytes",
      [](const Shape& shape, const PyOptions& options, int rank) { return state_bytes(shape, options.options, rank); },
      "shape"_a, "options"_a, "rank"_a);
}

}  // namespace ferry::python
