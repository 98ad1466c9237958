// Arrays of Python as Ferry's views, without a copy.
#pragma once

#include <ferry/tensor.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <vector>

namespace ferry::python {

// Views of arrays, and references that keep the memory alive. Made and destroyed with the GIL; the views may be used
// without it.
class Arrays {
 public:
  // Room for so many tensors of torch; more make it larger.
  explicit Arrays(std::size_t room = 1) { tensors_.reserve(room); }

  // `name` is that of the argument, for errors. None is a view that is not given. Throws TypeError where the object is
  // no array, cannot be written to, or has elements that Ferry knows nothing of.
  ConstTensor read(nanobind::handle array, const char* name);
  Tensor fill(nanobind::handle array, const char* name);

 private:
  std::vector<nanobind::ndarray<nanobind::ro>> read_;
  std::vector<nanobind::ndarray<>> filled_;
  std::vector<nanobind::object> tensors_;  // of torch
};

}  // namespace ferry::python
