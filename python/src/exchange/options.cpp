#include "python/src/exchange/options.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/base/parts.h"
#include "python/src/base/values.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

using Bound = nb::class_<PyOptions>;

// An option that Python has in the same type.
template <class Value>
void add_plain(Bound& bound, const char* name, Value ExchangeOptions::*field) {
  bound.def_prop_rw(
      name, [field](const PyOptions& self) { return self.options.*field; },
      [field](PyOptions& self, Value value) { self.options.*field = value; });
}

void add_deadline(Bound& bound, const char* name, std::chrono::milliseconds ExchangeOptions::*field) {
  bound.def_prop_rw(
      name, [field](const PyOptions& self) { return static_cast<double>((self.options.*field).count()) / 1000; },
      [field, name](PyOptions& self, double seconds) { self.options.*field = deadline_of(name, seconds); });
}

RowOrders orders_of(const std::vector<std::string>& names) {
  RowOrders orders;
  for (const std::string& name : names)
    orders = RowOrders::of_bits(static_cast<std::uint8_t>(orders.bits() | RowOrders{row_order_named(name)}.bits()));
  return orders;
}

std::vector<int> masked_ranks(const PyOptions& self) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(self.options.mask.size()); ++rank)
    if (is_masked(self.options.mask, rank)) ranks.push_back(rank);
  return ranks;
}

// How many ranks there are is known when the exchange is made, which checks the mask again.
void set_mask(PyOptions& self, const nb::iterable& ranks) {
  self.options.mask = mask_of(ranks, kMaxRanks);
  int used = 0;
  for (const int rank : masked_ranks(self)) used = rank + 1;
  self.options.mask.resize(static_cast<std::size_t>(used));
}

// Of one further format: the names of its fields, and their values.
DispatchFormat dispatch_format(const nb::dict& given) {
  DispatchFormat format;
  for (const auto& [key, value] : given) {
    const std::string name = nb::str(key).c_str();
    if (name == "format")
      format.format = format_named(nb::cast<std::string>(value));
    else if (name == "tiled_scales")
      format.tiled_scales = value_as<bool>("tiled_scales", value, kFlag);
    else if (name == "dynamic_scales")
      format.dynamic_scales = value_as<bool>("dynamic_scales", value, kFlag);
    else
      format.expert_alignment = whole_as<int>("expert_alignment", value);
  }
  return format;
}

void set_more_formats(PyOptions& self, const nb::list& given) {
  self.options.more_formats.clear();
  for (const nb::handle each : given) self.options.more_formats.push_back(dispatch_format(nb::cast<nb::dict>(each)));
}

}  // namespace

void add_options(nb::module_& module) {
  Bound bound(module, "Options");
  bound.def(nb::init<>());
  bound.def_prop_rw(
      "format", [](const PyOptions& self) { return self.options.format.name(); },
      [](PyOptions& self, const std::string& name) { self.options.format = format_named(name); });
  bound.def_prop_rw(
      "result_format", [](const PyOptions& self) { return self.options.result_format.name(); },
      [](PyOptions& self, const std::string& name) { self.options.result_format = result_format_named(name); });
  bound.def_prop_rw(
      "reduction", [](const PyOptions& self) { return to_string(self.options.reduction); },
      [](PyOptions& self, const std::string& name) {
        self.options.reduction =
            value_named("reduction", name, std::array{Reduction::by_rank, Reduction::exact, Reduction::either});
      });
  bound.def_prop_rw(
      "row_orders", [](const PyOptions& self) { return names_of(self.options.row_orders); },
      [](PyOptions& self, const std::vector<std::string>& names) { self.options.row_orders = orders_of(names); });
  bound.def_prop_rw("mask", &masked_ranks, &set_mask);
  bound.def_prop_rw(
      "more_formats",
      [](const PyOptions& self) {
        std::vector<std::string> names;
        for (const DispatchFormat& each : self.options.more_formats) names.emplace_back(each.format.name());
        return names;
      },
      &set_more_formats);
  add_plain(bound, "tiled_scales", &ExchangeOptions::tiled_scales);
  add_plain(bound, "expert_alignment", &ExchangeOptions::expert_alignment);
  add_plain(bound, "fused_shared_expert", &ExchangeOptions::fused_shared_expert);
  add_plain(bound, "skip_a2a", &ExchangeOptions::skip_a2a);
  add_plain(bound, "allreduce_world_size", &ExchangeOptions::allreduce_world_size);
  add_plain(bound, "late_weights", &ExchangeOptions::late_weights);
  add_plain(bound, "returns_weights", &ExchangeOptions::returns_weights);
  add_plain(bound, "dynamic_scales", &ExchangeOptions::dynamic_scales);
  add_plain(bound, "message_copies", &ExchangeOptions::message_copies);
  add_plain(bound, "concurrent", &ExchangeOptions::concurrent);
  add_plain(bound, "workers", &ExchangeOptions::workers);
  bound.def_prop_rw(
      "reserve_sms", [](const PyOptions& self) { return self.options.gpu.reserve_sms; },
      [](PyOptions& self, int value) { self.options.gpu.reserve_sms = value; });
  add_plain(bound, "short_handles", &ExchangeOptions::short_handles);
  add_deadline(bound, "deadline", &ExchangeOptions::deadline);
  add_deadline(bound, "set_up_deadline", &ExchangeOptions::set_up_deadline);
}

}  // namespace ferry::python
