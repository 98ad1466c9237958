// The list of cases, and how a failure reads.
#include "conformance/suite.h"

#include "conformance/cases.h"

namespace ferry::conformance {

Failure::Failure(int rank, std::string place, std::string expected, std::string got)
    : std::runtime_error("rank " + std::to_string(rank) + ", " + place + ": expected " + expected + ", got " + got),
      rank_(rank),
      place_(std::move(place)),
      expected_(std::move(expected)),
      got_(std::move(got)) {}

Target thread_target() {
  Target target;
  target.name = "cpu";
  target.max_ranks = kMaxRanksPerNode;
  target.encodes_results = true;
  target.late_weights = true;
  target.hooks_may_throw = true;
  target.run_ranks = [](int ranks, const std::function<void(World&)>& body) { ferry::run_ranks(ranks, body); };
  target.make_worlds = [](int ranks) { return make_thread_worlds(ranks); };
  return target;
}

const std::vector<Case>& all_cases() {
  static const Cases cases = [] {
    Cases list;
    add_world_cases(list);
    add_routing_cases(list);
    add_random_cases(list);
    add_call_cases(list);
    add_handle_cases(list);
    add_order_cases(list);
    add_size_cases(list);
    add_output_cases(list);
    add_overflow_cases(list);
    add_release_cases(list);
    add_option_cases(list);
    add_weight_cases(list);
    add_counts_cases(list);
    add_refusal_cases(list);
    add_agreement_cases(list);
    add_fault_cases(list);
    add_stress_cases(list);
    add_large_cases(list);
    add_report_cases(list);
    add_process_cases(list);
    return list;
  }();
  return cases;
}

}  // namespace ferry::conformance
