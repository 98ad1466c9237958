// Shapes, layouts, and what a dispatch fills.
#include <ferry/dispatch_output.h>
#include <ferry/exchange.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/base/parts.h"
#include "python/src/base/values.h"
#include "python/src/exchange/options.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {
namespace {

// What Python calls without a wrapper takes anything and judges it (values.h); nb::sig says what it must be.
Shape make_shape(nb::handle ranks, nb::handle experts, nb::handle top_k, nb::handle max_tokens, nb::handle hidden) {
  const Shape shape{.ranks = whole_as<int>("ranks", ranks),
                    .experts = whole_as<int>("experts", experts),
                    .top_k = whole_as<int>("top_k", top_k),
                    .max_tokens = whole_as<int>("max_tokens", max_tokens),
                    .hidden = whole_as<int>("hidden", hidden)};
  require_valid(shape);
  return shape;
}

int checked_rank(const Shape& shape, nb::handle given) {
  const auto rank = whole_as<int>("rank", given);
  if (rank < 0 || rank >= shape.ranks)
    throw Error(ErrorKind::invalid_argument,
                "rank is " + std::to_string(rank) + "; it must be 0 to " + std::to_string(shape.ranks - 1));
  return rank;
}

void add_shape(nb::module_& module) {
  nb::class_<Shape>(module, "Shape")
      .def(
          "__init__",
          [](Shape* self, nb::handle ranks, nb::handle experts, nb::handle top_k, nb::handle max_tokens,
             nb::handle hidden) { new (self) Shape(make_shape(ranks, experts, top_k, max_tokens, hidden)); },
          nb::kw_only(), "ranks"_a.none(), "experts"_a.none(), "top_k"_a.none(), "max_tokens"_a.none(),
          "hidden"_a.none(),
          nb::sig("def __init__(self, *, ranks: int, experts: int, top_k: int, max_tokens: int, hidden: int) -> None"))
      .def_ro("ranks", &Shape::ranks)
      .def_ro("experts", &Shape::experts)
      .def_ro("top_k", &Shape::top_k)
      .def_ro("max_tokens", &Shape::max_tokens)
      .def_ro("hidden", &Shape::hidden)
      .def(
          "num_local_experts",
          [](const Shape& self, nb::handle rank) { return num_local_experts(self, checked_rank(self, rank)); },
          "rank"_a.none(), nb::sig("def num_local_experts(self, rank: int) -> int"))
      .def(
          "first_expert",
          [](const Shape& self, nb::handle rank) { return first_expert(self, checked_rank(self, rank)); },
          "rank"_a.none(), nb::sig("def first_expert(self, rank: int) -> int"))
      .def(
          "owner_of",
          [](const Shape& self, nb::handle given) {
            const auto expert = whole_as<int>("expert", given);
            if (expert < 0 || expert >= self.experts)
              throw Error(ErrorKind::invalid_argument, "expert is " + std::to_string(expert) + "; it must be 0 to " +
                                                           std::to_string(self.experts - 1));
            return owner_of(self, expert);
          },
          "expert"_a.none(), nb::sig("def owner_of(self, expert: int) -> int"))
      .def("__repr__", [](const Shape& self) { return "Shape(" + to_string(self) + ")"; });
}

RowOrder row_order_of(nb::handle given) { return row_order_named(value_as<std::string>("row_order", given, kText)); }

std::vector<TensorSpec> outputs_of(const RowLayout& self, nb::handle row_capacity, nb::handle row_order,
                                   nb::handle expert_stride, nb::handle all) {
  return dispatch_outputs(self, whole_as<std::int64_t>("row_capacity", row_capacity), row_order_of(row_order),
                          whole_as<std::int64_t>("expert_stride", expert_stride),
                          value_as<bool>("all", all, kFlag) ? OutputList::all : OutputList::usual);
}

std::int64_t short_bytes_by_counts(const RowLayout& self, nb::handle tokens, const RowCounts& counts) {
  return self.short_handle_bytes(whole_as<std::int64_t>("tokens", tokens), counts);
}
std::int64_t short_bytes(const RowLayout& self, nb::handle tokens, nb::handle messages, nb::handle rows) {
  return self.short_handle_bytes(whole_as<std::int64_t>("tokens", tokens), whole_as<std::int64_t>("messages", messages),
                                 whole_as<std::int64_t>("rows", rows));
}

void add_row_layout(nb::module_& module) {
  nb::class_<RowLayout>(module, "RowLayout")
      .def_ro("groups", &RowLayout::groups)
      .def_ro("alignment", &RowLayout::alignment)
      .def_ro("min_row_capacity", &RowLayout::min_row_capacity)
      .def_ro("payload_row_bytes", &RowLayout::payload_row_bytes)
      .def_prop_ro("scale_dtype", [](const RowLayout& self) { return to_string(self.scale_dtype); })
      .def_prop_ro("scale_layout", [](const RowLayout& self) { return to_string(self.scale_layout); })
      .def_ro("scales_per_row", &RowLayout::scales_per_row)
      .def_ro("hidden", &RowLayout::hidden)
      .def_ro("handle_bytes", &RowLayout::handle_bytes)
      .def_ro("expert_rows", &RowLayout::expert_rows)
      .def_ro("sources", &RowLayout::sources)
      .def_ro("top_k", &RowLayout::top_k)
      .def_ro("has_global_scales", &RowLayout::has_global_scales)
      .def(
          "least_rows",
          [](const RowLayout& self, nb::handle row_order, nb::handle expert_stride) {
            return self.least_rows(row_order_of(row_order), whole_as<std::int64_t>("expert_stride", expert_stride));
          },
          "row_order"_a.none(), "expert_stride"_a.none() = 0,
          nb::sig("def least_rows(self, row_order: str, expert_stride: int = 0) -> int"))
      .def("short_handle_bytes", &short_bytes_by_counts, "tokens"_a.none(), "counts"_a,
           nb::sig("def short_handle_bytes(self, tokens: int, counts: RowCounts) -> int"))
      .def("short_handle_bytes", &short_bytes, "tokens"_a.none(), nb::kw_only(), "messages"_a.none(), "rows"_a.none(),
           nb::sig("def short_handle_bytes(self, tokens: int, *, messages: int, rows: int) -> int"))
      .def(
          "dispatch_outputs", &outputs_of, "row_capacity"_a.none(), "row_order"_a.none() = "by_expert",
          "expert_stride"_a.none() = 0, "all"_a.none() = false,
          nb::sig("def dispatch_outputs(self, row_capacity: int, row_order: str = 'by_expert', expert_stride: int = 0, "
                  "all: bool = False) -> list[TensorSpec]"))
      .def("__repr__", [](const RowLayout& self) {
        return fmt::format("RowLayout({} groups, hidden {}, {} payload bytes and {} scales a row, at least {} rows)",
                           self.groups, self.hidden, self.payload_row_bytes, self.scales_per_row,
                           self.min_row_capacity);
      });
  nb::class_<TensorSpec>(module, "TensorSpec")
      .def_ro("name", &TensorSpec::name)
      .def_prop_ro("dtype", [](const TensorSpec& self) { return to_string(self.dtype); })
      .def_prop_ro("shape", [](const TensorSpec& self) { return nb::tuple(nb::cast(self.shape)); })
      .def_ro("alignment", &TensorSpec::alignment)
      .def_ro("is_optional", &TensorSpec::is_optional)
      .def_prop_ro("nbytes", &TensorSpec::bytes)
      .def("__repr__", [](const TensorSpec& self) {
        return fmt::format("TensorSpec({} {} [{}]{})", self.name, to_string(self.dtype), fmt::join(self.shape, ", "),
                           self.is_optional ? ", optional" : "");
      });
}

nb::dict memory_of(const Shape& shape, const PyOptions& options, bool has_remote_ranks) {
  const MemoryUse use = memory_use(shape, options.options, has_remote_ranks);
  nb::dict regions;
  for (const MemoryUse::Region& region : use.regions) regions[region.name] = region.bytes;
  regions["total"] = use.total;
  return regions;
}

}  // namespace

void add_layout(nb::module_& module) {
  add_shape(module);
  add_row_layout(module);
  module.def(
      "row_layout",
      [](const Shape& shape, const PyOptions& options, nb::handle rank, int format) {
        return row_layout(shape, options.options, checked_rank(shape, rank), format);
      },
      "shape"_a, "options"_a, "rank"_a, "format"_a);
  module.def("memory_use", &memory_of, "shape"_a, "options"_a, "has_remote_ranks"_a);
}

}  // namespace ferry::python
