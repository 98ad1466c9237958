// Words, seconds and lists of ranks as Python gives them.
#pragma once

#include <ferry/error.h>
#include <ferry/world.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ferry::python {

// The value of that name. Throws Error(invalid_argument) that lists all names.
template <class Value, std::size_t kCount>
Value value_named(const char* argument, std::string_view name, const std::array<Value, kCount>& values) {
  std::string names;
  for (const Value value : values) {
    if (name == to_string(value)) return value;
    names += (names.empty() ? "" : ", ") + std::string(to_string(value));
  }
  throw Error(ErrorKind::invalid_argument,
              std::string(argument) + " is '" + std::string(name) + "'; it must be one of " + names);
}

// Throws TypeError that has the argument's name and value, neither of which nanobind's own has.
[[noreturn]] void refuse_type(const char* argument, nanobind::handle given, const char* must_be);

// The value in the type of C++. Throws TypeError that says what it is and must be. True is no number.
template <class Value>
Value value_as(const char* argument, nanobind::handle given, const char* must_be) {
  constexpr bool takes_bool = !std::is_arithmetic_v<Value> || std::is_same_v<Value, bool>;
  Value value{};
  if ((takes_bool || !PyBool_Check(given.ptr())) && nanobind::try_cast(given, value)) return value;
  refuse_type(argument, given, must_be);
}
inline constexpr const char* kFlag = "True or False";
inline constexpr const char* kNumber = "a number";
inline constexpr const char* kText = "text";

// A whole number. Throws TypeError as value_as, and Error(invalid_argument) where it does not fit the type.
template <class Integer>
Integer whole_as(const char* argument, nanobind::handle given) {
  Integer value{};
  if (!PyIndex_Check(given.ptr()) || PyBool_Check(given.ptr())) refuse_type(argument, given, "a whole number");
  if (nanobind::try_cast(given, value)) return value;
  // A flag of an older numpy has an index, and warns: where that is an error, it is none.
  const auto index = nanobind::steal(PyNumber_Index(given.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    refuse_type(argument, given, "a whole number");
  }
  throw Error(ErrorKind::invalid_argument, std::string(argument) + " is " + nanobind::repr(given).c_str() +
                                               "; it must fit " + std::to_string(8 * sizeof(Integer)) + " bits");
}

// Seconds as Python counts them, up to the next millisecond; None is zero, which takes the default of the call.
std::chrono::milliseconds deadline_of(const char* argument, const std::optional<double>& seconds);
std::chrono::milliseconds deadline_of(const char* argument, nanobind::handle seconds);

// The ranks of an iterable as a mask for a world of `size` ranks.
RankMask mask_of(const nanobind::iterable& ranks, int size);

RowOrder row_order_named(std::string_view name);

std::vector<std::string> names_of(RowOrders orders);

}  // namespace ferry::python
