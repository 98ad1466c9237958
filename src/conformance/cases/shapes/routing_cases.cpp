// Cases over the named shapes and routings: every format, both reductions.
#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Reduction kReductions[] = {Reduction::by_rank, Reduction::exact};

void run_shape(const Target& target, const Shape& shape) {
  if (shape.ranks > target.max_ranks)  // fewer ranks would be another shape
    throw Skipped("needs " + std::to_string(shape.ranks) + " ranks; the backend has " +
                  std::to_string(target.max_ranks));
  for (const AnyFormat& format : all_formats()) {
    for (const Reduction reduction : kReductions) {
      ScenarioSettings settings;
      settings.shape = shape;
      settings.options = options_for(format.name(), reduction);
      settings.output_dtype = reduction == Reduction::exact ? DType::f32 : DType::bf16;
      settings.seed = 11;
      run_scenario(target, settings);
      if (format.name() == std::string("mxfp8")) {
        settings.options.tiled_scales = true;
        run_scenario(target, settings);
      }
    }
  }
}

void run_routing(const Target& target, const char* routing, const Shape& shape) {
  for (const char* format : {"bf16", "fp8_block128", "mxfp6_e2m3", "nvfp4"}) {
    for (const Reduction reduction : kReductions) {
      ScenarioSettings settings;
      settings.shape = shape;
      settings.options = options_for(format, reduction);
      settings.output_dtype = reduction == Reduction::exact ? DType::bf16 : DType::f32;
      settings.routing = routing;
      settings.seed = 7;
      run_scenario(target, settings, Form::one_call);
    }
  }
}

bool is_quick(const Shape& shape) {
  return std::int64_t{shape.ranks} * shape.max_tokens * shape.top_k * shape.hidden < 20'000;
}

}  // namespace

void add_routing_cases(Cases& cases) {
  for (const test::ShapeCase& shape : test::shape_cases())
    cases.push_back({std::string("shapes/") + shape.name, "every format and reduction with " + to_string(shape.shape),
                     is_quick(shape.shape), [&shape](const Target& target) { run_shape(target, shape.shape); }});
  for (const test::RoutingCase& routing : test::routing_cases())
    cases.push_back(
        {std::string("routings/") + routing.name, routing.what, true, [&routing](const Target& target) {
           run_routing(target, routing.name, {.ranks = 3, .experts = 11, .top_k = 4, .max_tokens = 20, .hidden = 64});
           run_routing(target, routing.name, {.ranks = 4, .experts = 6, .top_k = 6, .max_tokens = 9, .hidden = 32});
         }});
}

}  // namespace ferry::conformance
