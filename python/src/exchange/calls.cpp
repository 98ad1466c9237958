#include "python/src/exchange/calls.h"

#include <array>
#include <string>
#include <string_view>

#include "python/src/base/values.h"
#include "python/src/exchange/hooks.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

template <class Struct, class View>
struct Field {
  const char* name;
  View Struct::*view;
  std::string_view text = name;  // with its length
};

constexpr Field<DispatchInput, ConstTensor> kDispatchInputs[] = {
    {"tokens", &DispatchInput::tokens},
    {"topk_ids", &DispatchInput::topk_ids},
    {"topk_weights", &DispatchInput::topk_weights},
    {"handle", &DispatchInput::handle},
    {"in_rank", &DispatchInput::in_rank},
    {"expert_counts", &DispatchInput::expert_counts},
    {"token_scales", &DispatchInput::token_scales},
    {"token_global_scales", &DispatchInput::token_global_scales},
};
constexpr Field<DispatchOutput, Tensor> kDispatchOutputs[] = {
    {"payload", &DispatchOutput::payload},
    {"scales", &DispatchOutput::scales},
    {"row_offsets", &DispatchOutput::row_offsets},
    {"expert_ids", &DispatchOutput::expert_ids},
    {"src_info", &DispatchOutput::src_info},
    {"scales_offsets", &DispatchOutput::scales_offsets},
    {"handle", &DispatchOutput::handle},
    {"counts", &DispatchOutput::counts},
    {"row_topk_ids", &DispatchOutput::row_topk_ids},
    {"row_topk_weights", &DispatchOutput::row_topk_weights},
    {"source_offsets", &DispatchOutput::source_offsets},
    {"global_scales", &DispatchOutput::global_scales},
    {"gather", &DispatchOutput::gather},
    {"source_starts", &DispatchOutput::source_starts},
    {"row_weights", &DispatchOutput::row_weights},
    {"row_sources", &DispatchOutput::row_sources},
    {"messages", &DispatchOutput::messages},
    {"row_scales", &DispatchOutput::row_scales},
    {"overflow", &DispatchOutput::overflow},
    {"cumulative_counts", &DispatchOutput::cumulative_counts},
    {"waited_ns", &DispatchOutput::waited_ns},
};
constexpr Field<CombineInput, ConstTensor> kCombineInputs[] = {
    {"rows", &CombineInput::rows},
    {"src_info", &CombineInput::src_info},
    {"topk_weights", &CombineInput::topk_weights},
    {"handle", &CombineInput::handle},
    {"row_topk_weights", &CombineInput::row_topk_weights},
};
// By the names of Python's arguments, and as CombineOutput has them.
constexpr Field<CombineOutput, Tensor> kSums[] = {
    {"out", &CombineOutput::tokens, "tokens"},
    {"topk_weights_out", &CombineOutput::topk_weights, "topk_weights"},
    {"waited_ns", &CombineOutput::waited_ns},
};

// Where the field of that name is in the table; null without one.
template <class Table>
auto find_field(const Table& table, std::string_view name) -> decltype(&table[0]) {
  for (const auto& field : table)
    if (name == field.text) return &field;
  return nullptr;
}

// One array has elements, too, which are its rows. It is told by its type, as it may be long.
void require_list_of_arrays(const char* name, nb::handle given) {
  const bool is_array = nb::hasattr(given, "dtype");
  if (PySequence_Check(given.ptr()) && !is_array && !PyUnicode_Check(given.ptr())) return;
  refuse_type(name, is_array ? nb::handle(given.type()) : given, "a list of arrays: give a list of one or two");
}

[[noreturn]] void refuse_unknown(std::string_view name) {
  throw nb::type_error(("there is no argument " + std::string(name)).c_str());
}

// What str() of an object says, as long as the object and this live. The text of a str is not copied.
class Text {
 public:
  explicit Text(nb::handle object)
      : made_(PyUnicode_CheckExact(object.ptr()) ? nb::object() : nb::object(nb::str(object))),
        text_(view_of(made_.is_valid() ? made_ : object)) {}
  operator std::string_view() const { return text_; }

 private:
  static std::string_view view_of(nb::handle text) {
    Py_ssize_t size = 0;
    const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes == nullptr) throw nb::python_error();
    return {bytes, static_cast<std::size_t>(size)};
  }

  nb::object made_;
  std::string_view text_;
};

// Of the arguments of a dispatch or a combine.
template <class Arguments>
void take_router_weight(Arguments& arguments, nb::handle given) {
  arguments.router_weight = nb::borrow(given);
  const RouterWeight hook = router_weight_of(given);
  arguments.in.router_weight = hook.function;
  arguments.in.router_weight_context = hook.context;
}

// The number in an array of one. A GPU's kernels read it; nobody here does.
const float* scale_in(nb::handle array, Device device, Arrays& arrays) {
  const ConstTensor scale = arrays.read(array, "input_scale");
  if (scale.dtype != DType::f32 || scale.elements() != 1 || scale.device != device)
    throw Error(ErrorKind::invalid_argument, "input_scale is " + to_string(scale) + " on " + to_string(scale.device) +
                                                 "; it must be a number, or f32 [1] on " + to_string(device));
  return scale.as<float>();
}

void take_input_scale(DispatchArguments& to, nb::handle value, Device device) {
  if (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()))
    to.input_scale = value_as<float>("input_scale", value, kNumber);
  else
    to.in.input_scale = scale_in(value, device, to.arrays);
}
void take_overflow(DispatchArguments& to, nb::handle value, Device) {
  to.in.overflow =
      value_named("overflow", Text(value), std::array{Overflow::refused, Overflow::reported, Overflow::expected});
}
void take_biases(CombineArguments& to, nb::handle value, Device) {
  require_list_of_arrays("bias", value);
  const std::size_t count = nb::len(value);
  if (count > static_cast<std::size_t>(kMaxBias))
    throw Error(ErrorKind::invalid_argument,
                "bias has " + std::to_string(count) + " arrays; the limit is " + std::to_string(kMaxBias));
  for (std::size_t index = 0; index < count; ++index) to.in.bias[index] = to.arrays.read(value[index], "bias");
}
void take_sum_order(CombineArguments& to, nb::handle value, Device) {
  const Text given_order(value);
  const std::string_view order = given_order;
  if (order != "by_rank" && order != "by_last_k")
    throw Error(ErrorKind::invalid_argument,
                "sum_order is '" + std::string(order) + "'; it must be one of by_rank, by_last_k");
  to.in.sum_order = order == "by_rank" ? SumOrder::by_rank : SumOrder::by_last_k;
}

// What is no array. None counts as not given.
template <class Arguments>
struct Option {
  const char* name;
  void (*take)(Arguments&, nb::handle, Device);
  std::string_view text = name;
};
constexpr Option<DispatchArguments> kDispatchOptions[] = {
    {"input_scale", take_input_scale},
    {"router_weight", [](auto& to, nb::handle value, Device) { take_router_weight(to, value); }},
    {"row_order", [](auto& to, nb::handle value, Device) { to.in.row_order = row_order_named(Text(value)); }},
    {"format", [](auto& to, nb::handle value, Device) { to.in.format = whole_as<int>("format", value); }},
    {"expert_stride",
     [](auto& to, nb::handle value, Device) { to.in.expert_stride = whole_as<std::int64_t>("expert_stride", value); }},
    {"overflow", take_overflow},
};
constexpr Option<CombineArguments> kCombineOptions[] = {
    {"router_weight", [](auto& to, nb::handle value, Device) { take_router_weight(to, value); }},
    {"bias", take_biases},
    {"sum_order", take_sum_order},
    {"reduction",
     [](auto& to, nb::handle value, Device) {
       to.in.reduction = value_named("reduction", Text(value), std::array{Reduction::by_rank, Reduction::exact});
     }},
    {"apply_weights",
     [](auto& to, nb::handle value, Device) { to.in.apply_weights = value_as<bool>("apply_weights", value, kFlag); }},
};

template <class Arguments, class Fields, class Options>
void take_all(const nb::dict& given, Arguments& to, const Fields& fields, const Options& options, Device device) {
  for (const auto& [key, value] : given) {
    const Text text(key);
    const std::string_view name = text;
    if (const auto* field = find_field(fields, name))
      to.in.*field->view = to.arrays.read(value, field->name);
    else if (const auto* option = find_field(options, name); option == nullptr)
      refuse_unknown(name);
    else if (!value.is_none())
      option->take(to, value, device);
  }
}

}  // namespace

DispatchArguments::DispatchArguments(const nb::dict& given, Device device) : arrays(given.size()) {
  take_all(given, *this, kDispatchInputs, kDispatchOptions, device);
  if (!input_scale) return;
  if (device.kind == Device::Kind::cuda)
    throw Error(ErrorKind::invalid_argument, "input_scale is the number " + std::to_string(*input_scale) +
                                                 "; on a GPU it must be an array f32 [1] on " + to_string(device));
  in.input_scale = &*input_scale;
}

OutputArguments::OutputArguments(const nb::dict& given) : arrays(given.size()) {
  for (const auto& [key, value] : given) {
    const Text text(key);
    const std::string_view name = text;
    if (const auto* field = find_field(kDispatchOutputs, name))
      out.*field->view = arrays.fill(value, field->name);
    else if (name == "zero_padding")
      out.zero_padding = value_as<bool>("zero_padding", value, kFlag);
    else
      refuse_unknown(name);
  }
}

CombineArguments::CombineArguments(const nb::dict& given) : arrays(given.size()) {
  take_all(given, *this, kCombineInputs, kCombineOptions, {});
}

SumArguments::SumArguments(const nb::dict& given) : arrays(given.size()) {
  for (const auto& [key, value] : given) {
    const Text text(key);
    const std::string_view name = text;
    if (const auto* field = find_field(kSums, name)) {
      out.*field->view = arrays.fill(value, field->name);
    } else if (name == "epilogue") {
      epilogue = nb::borrow(value);
      const Epilogue hook = epilogue_of(value);
      out.epilogue = hook.function;
      out.epilogue_context = hook.context;
    } else {
      refuse_unknown(name);
    }
  }
}

void throw_by_arguments(const Error& error, bool reads_weights) {
  std::string text = error.what();
  const std::size_t colon = text.starts_with("rank ") ? text.find(": ") : std::string::npos;
  const std::size_t start = colon == std::string::npos ? 0 : colon + 2;
  const std::string_view said = std::string_view(text).substr(start);
  const std::string_view named = said.substr(0, said.find_first_of(" :"));
  const auto* sum = find_field(kSums, named);
  // "tokens of rank 1" are those of a dispatch that all ranks refused.
  const bool is_other = sum == nullptr || said.starts_with("tokens of rank ") ||
                        (reads_weights && sum->view == &CombineOutput::topk_weights);
  if (error.kind() != ErrorKind::invalid_argument || is_other) throw;
  throw Error(ErrorKind::invalid_argument, text.replace(start, named.size(), sum->name));
}

}  // namespace ferry::python
