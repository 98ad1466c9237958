// DLPack's table of C functions, by which a tensor of torch says what it is in well under a microsecond. The way
// through Python's objects takes several, for each tensor of a call.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>

namespace ferry::python {

// Fills `tensor`, whose shape and strides are those of `array` and live as long as it. False where `array` is no plain
// tensor of a torch that has the table, or one that it refuses: the way through Python's objects says what is wrong.
bool describe_torch_tensor(nanobind::handle array, nanobind::dlpack::dltensor& tensor);

// Each of the two is a dict or None. Whether a call may take all values as they are. A tensor of torch must be plain,
// on that device (DLPack's numbers), without gradients, of elements that DLPack has names for. Numbers, text and None
// are always taken.
bool are_plain_tensors(int device_type, int device, nanobind::handle read, nanobind::handle filled);

// The stream that is current in torch on a GPU, by its number; nothing where torch is not there or has no table.
std::optional<std::uintptr_t> torch_stream(int device);

}  // namespace ferry::python
