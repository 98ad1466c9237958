#include "python/src/arrays/exchange_api.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

// dlpack.h, version 1. The fields up to the version stay in all versions.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  ExchangeApi* older;
  void* allocator;
  void* managed_tensor_from_object;
  void* managed_tensor_to_object;
  int (*tensor_from_object)(void* object, nb::dlpack::dltensor* out);  // null where a framework has none
  int (*current_stream)(int device_type, std::int32_t device, void** out);
};

const ExchangeApi* table_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  const auto* table = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) PyErr_Clear();
  for (; table != nullptr; table = table->older)
    if (table->major == 1) return table->tensor_from_object == nullptr ? nullptr : table;
  return nullptr;
}

// The type torch.Tensor, and its table. Subclasses may have no memory of their own. The types of torch are never freed.
struct TorchTensor {
  PyObject* type = nullptr;
  PyObject* parameter = nullptr;
  const ExchangeApi* table = nullptr;
};

// Looked for again until torch has been imported; it is not imported here.
const TorchTensor& torch_tensor() {
  static TorchTensor known;
  if (known.type != nullptr) return known;
  PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  if (module == nullptr) return known;
  const nb::object type = nb::getattr(module, "Tensor", nb::none());
  const nb::object parameter = nb::getattr(nb::getattr(module, "nn", nb::none()), "Parameter", nb::none());
  if (type.is_none() || parameter.is_none()) return known;  // half imported
  known.table = table_of(type);
  known.parameter = parameter.ptr();
  known.type = type.ptr();
  return known;
}

// Whether autograd records it. Only elements with fractions have gradients: others are not asked, which takes time.
bool requires_grad(nb::handle array, const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  if (code == Code::Int || code == Code::UInt || code == Code::Bool) return false;
  // Of a C string each call would make a str.
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  return !nb::getattr(array, nb::handle(name)).is(nb::bool_(false));
}

bool are_plain(int device_type, int device, nb::handle named) {
  if (named.is_none()) return true;
  if (!PyDict_Check(named.ptr())) return false;
  for (const auto& [name, value] : nb::borrow<nb::dict>(named)) {
    PyObject* const object = value.ptr();
    if (value.is_none() || PyUnicode_Check(object) || PyLong_Check(object) || PyFloat_Check(object)) continue;
    nb::dlpack::dltensor tensor;
    if (!describe_torch_tensor(value, tensor)) return false;
    const bool is_here = tensor.device.device_type == device_type &&
                         (device_type == nb::device::cpu::value || tensor.device.device_id == device);
    const bool is_float8 = tensor.dtype.code > static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bool);
    if (!is_here || is_float8 || requires_grad(value, tensor.dtype)) return false;
  }
  return true;
}

}  // namespace

bool describe_torch_tensor(nb::handle array, nb::dlpack::dltensor& tensor) {
  const TorchTensor& torch = torch_tensor();
  const auto* const type = reinterpret_cast<const PyObject*>(array.type().ptr());
  if (torch.table == nullptr || (type != torch.type && type != torch.parameter)) return false;
  if (torch.table->tensor_from_object(array.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  return tensor.strides != nullptr || tensor.ndim == 0;
}

bool are_plain_tensors(int device_type, int device, nb::handle read, nb::handle filled) {
  return are_plain(device_type, device, read) && are_plain(device_type, device, filled);
}

std::optional<std::uintptr_t> torch_stream(int device) {
  const TorchTensor& torch = torch_tensor();
  void* stream = nullptr;
  if (torch.table == nullptr) return std::nullopt;
  if (torch.table->current_stream(nb::device::cuda::value, device, &stream) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  return reinterpret_cast<std::uintptr_t>(stream);
}

}  // namespace ferry::python
