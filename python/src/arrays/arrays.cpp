#include "python/src/arrays/arrays.h"

#include <string>
#include <string_view>

#include "python/src/arrays/exchange_api.h"
#include "python/src/cuda/cuda_parts.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

alignas(64) std::byte no_elements[64];  // what views without elements point to: null would mean "not given"

// uint16 elements are the bits of bf16, and elements of eight bits are bytes.
DType dtype_of(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  const bool is_float8 = dtype.code >= static_cast<std::uint8_t>(Code::Float8_E3M4) &&
                         dtype.code <= static_cast<std::uint8_t>(Code::Float8_E8M0FNU);
  if (dtype.lanes != 1) return DType::none;
  switch (dtype.bits) {
    case 8:
      return code == Code::UInt || code == Code::Bool || is_float8 ? DType::u8 : DType::none;
    case 16:
      if (code == Code::Float) return DType::f16;
      return code == Code::Bfloat || code == Code::UInt ? DType::bf16 : DType::none;
    case 32:
      if (code == Code::Float) return DType::f32;
      if (code == Code::Int) return DType::i32;
      return code == Code::UInt ? DType::u32 : DType::none;
    case 64:
      if (code == Code::Float) return DType::f64;
      return code == Code::Int ? DType::i64 : DType::none;
    default:
      return DType::none;
  }
}

std::string text_of(nb::handle object) { return nb::str(object).c_str(); }

// torch may negate a tensor by a mark alone, which DLPack does not carry: who reads the memory misses the sign.
void require_sign(nb::handle array, const char* name) {
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  const nb::object found = nb::steal(PyObject_CallMethodObjArgs(array.ptr(), is_neg, nullptr));
  if (!found.is_valid()) nb::raise_python_error();
  if (found.is(nb::bool_(false))) return;
  throw Error(ErrorKind::invalid_argument, std::string(name) +
                                               " is negated by a mark of torch alone (is_neg()), and its memory lacks "
                                               "the sign; give " +
                                               name + ".resolve_neg()");
}
// Other tensors are not asked, as each look takes a twentieth of a microsecond.
bool has_fractions(nb::dlpack::dtype dtype) {
  return dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) ||
         dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat);
}

// What DLPack cannot say, or does not say everywhere, as the same bits: ml_dtypes' types in numpy, and of torch 8-bit
// floats, and tensors that require gradients, which it does not give away.
nb::object plain_bits(nb::handle array, const char* of) {
  const nb::object dtype = nb::getattr(array, "dtype", nb::none());
  if (dtype.is_none() || !nb::hasattr(array, "view")) return nb::borrow(array);
  const std::string name = text_of(dtype);
  if (name == "bfloat16" || name.starts_with("float8_")) {
    // Of numpy alone: another framework's view may be new memory, which nobody would keep.
    if (!nb::hasattr(array, "__array_interface__")) return nb::borrow(array);
    return array.attr("view")(name == "bfloat16" ? "uint16" : "uint8");
  }
  if (!name.starts_with("torch.")) return nb::borrow(array);
  require_sign(array, of);
  nb::object plain = nb::cast<bool>(array.attr("requires_grad")) ? array.attr("detach")() : nb::borrow(array);
  if (name.starts_with("torch.float8_") || name.starts_with("torch.float4_"))
    return plain.attr("view")(nb::module_::import_("torch").attr("uint8"));
  return plain;
}

// What an array is, in DLPack's words. Shape and strides are the array's.
struct Described {
  void* data;
  nb::dlpack::dtype dtype;
  int device_type;
  int device_id;
  std::size_t axes;
  const std::int64_t* shape;
  const std::int64_t* strides;
};

template <class Array>
Described described(const Array& array) {
  return {const_cast<void*>(static_cast<const void*>(array.data())),
          array.dtype(),
          array.device_type(),
          array.device_id(),
          array.ndim(),
          array.shape_ptr(),
          array.stride_ptr()};
}
Described described(const nb::dlpack::dltensor& tensor) {
  return {static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
          tensor.dtype,
          tensor.device.device_type,
          tensor.device.device_id,
          static_cast<std::size_t>(tensor.ndim),
          tensor.shape,
          tensor.strides};
}

// Managed memory lies on no device, and pinned memory is the host's.
Device device_of(const Described& array, const char* name) {
  switch (array.device_type) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value:
      return Device::cpu();
    case nb::device::cuda::value:
      return Device::cuda(array.device_id);
    case nb::device::cuda_managed::value:
      return {};
    default:
      throw Error(ErrorKind::invalid_argument, std::string(name) + " lies on a device of DLPack's kind " +
                                                   std::to_string(array.device_type) +
                                                   "; Ferry takes memory of the host (1) and of NVIDIA GPUs (2)");
  }
}

// The type of an object that is not taken as an array, and what may be why: its dtype, and where it has a layout, as
// tensors of torch have (sparse), that and its device (meta).
std::string type_and_traits(nb::handle object) {
  std::string text = text_of(nb::repr(object.type()));
  const char* before = " of ";
  for (const char* trait : {"dtype", "layout", "device"}) {
    if (!nb::hasattr(object, trait)) break;
    text += std::string(before) + trait + " " + text_of(nb::getattr(object, trait));
    before = ", ";
  }
  return text;
}

template <class Array>
Array array_of(nb::handle object, const char* name, const char* must_be) {
  const nb::object plain = plain_bits(object, name);
  Array array;
  if (!nb::try_cast(plain, array))
    throw nb::type_error((std::string(name) + " is " + type_and_traits(plain) + "; it must be " + must_be +
                          ": numpy's, of numbers in this machine's byte order, or anything dense with DLPack or the "
                          "buffer protocol")
                             .c_str());
  if (dtype_of(array.dtype()) == DType::none)
    throw nb::type_error((std::string(name) + " has elements of type " +
                          text_of(nb::getattr(plain, "dtype", nb::str("unknown"))) +
                          "; Ferry takes float32, float16, bfloat16 (also its bits as uint16), int32, int64, uint32, "
                          "uint8 and 8-bit floats as bytes")
                             .c_str());
  return array;
}

// Offsets are u32. i32, which torch computes with, is the same bits below 2^31 rows.
bool is_offsets(std::string_view name) {
  return name == "row_offsets" || name == "scales_offsets" || name == "source_offsets";
}

// No stride is used of an axis of one element, and torch gives it as 1. On GPUs rows lie apart by multiples of 16
// bytes, and so does the only one.
template <class View>
void close_strides(View& view) {
  for (int axis = view.rank - 1; axis >= 0; --axis)
    if (view.shape[axis] == 1)
      view.strides[axis] = axis + 1 < view.rank ? view.shape[axis + 1] * view.strides[axis + 1] : 1;
}

// A flag is a byte, and so is an encoded token: where no flags are meant, they would be read as something else.
void require_no_flags(nb::dlpack::dtype dtype, const char* name) {
  if (dtype.code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bool) || std::string_view(name) == "in_rank")
    return;
  throw nb::type_error(
      (std::string(name) + " has elements of type bool, which Ferry takes for in_rank alone; convert it first")
          .c_str());
}

template <class View, class Byte>
View view_of(const Described& array, const char* name) {
  require_no_flags(array.dtype, name);
  if (array.axes > static_cast<std::size_t>(kMaxTensorRank))
    throw Error(ErrorKind::invalid_argument,
                std::string(name) + " has " + std::to_string(array.axes) + " axes; the limit is 5");
  View view;
  view.data = static_cast<Byte*>(array.data);
  view.dtype = dtype_of(array.dtype);
  view.rank = static_cast<int>(array.axes);
  for (std::size_t axis = 0; axis < array.axes; ++axis) {
    view.shape[axis] = array.shape[axis];
    view.strides[axis] = array.strides[axis];
  }
  view.device = device_of(array, name);
  if (view.dtype == DType::i32 && is_offsets(name)) view.dtype = DType::u32;
  close_strides(view);
  if (view.elements() != 0) return view;
  // No elements: numpy has strides of 0 then, and others no memory.
  void* const nothing = view.device.kind == Device::Kind::cuda ? nothing_on_gpu(view.device.index) : no_elements;
  return View(static_cast<Byte*>(nothing), view.dtype, std::span(view.shape).first(static_cast<std::size_t>(view.rank)),
              view.device);
}

}  // namespace

ConstTensor Arrays::read(nb::handle array, const char* name) {
  if (array.is_none()) return {};
  nb::dlpack::dltensor tensor;
  if (describe_torch_tensor(array, tensor) && dtype_of(tensor.dtype) != DType::none) {
    if (has_fractions(tensor.dtype)) require_sign(array, name);
    tensors_.push_back(nb::borrow(array));
    return view_of<ConstTensor, const void>(described(tensor), name);
  }
  read_.push_back(array_of<nb::ndarray<nb::ro>>(array, name, "an array"));
  return view_of<ConstTensor, const void>(described(read_.back()), name);
}

Tensor Arrays::fill(nb::handle array, const char* name) {
  if (array.is_none()) return {};
  nb::dlpack::dltensor tensor;
  if (describe_torch_tensor(array, tensor) && dtype_of(tensor.dtype) != DType::none) {
    if (has_fractions(tensor.dtype)) require_sign(array, name);
    tensors_.push_back(nb::borrow(array));
    return view_of<Tensor, void>(described(tensor), name);
  }
  filled_.push_back(array_of<nb::ndarray<>>(array, name, "an array that can be written to"));
  return view_of<Tensor, void>(described(filled_.back()), name);
}

}  // namespace ferry::python
