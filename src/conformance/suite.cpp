// The list of cases.
#include "conformance/suite.h"

#include <utility>

#include "conformance/cases/cases.h"

namespace ferry::conformance {

const std::vector<Case>& all_cases() {
  static const Cases cases = [] {
    Cases list;
    add_world_cases(list);
    add_capability_cases(list);
    add_routing_cases(list);
    add_random_cases(list);
    add_combination_cases(list);
    add_call_cases(list);
    add_handle_cases(list);
    add_masked_handle_cases(list);
    add_order_cases(list);
    add_size_cases(list);
    add_excess_cases(list);
    add_output_cases(list);
    add_waiting_cases(list);
    add_overflow_cases(list);
    add_release_cases(list);
    add_shared_memory_cases(list);
    add_option_cases(list);
    add_bytes_cases(list);
    add_weight_cases(list);
    add_returned_weight_cases(list);
    add_reduction_cases(list);
    add_counts_cases(list);
    add_format_cases(list);
    add_extreme_cases(list);
    add_own_cases(list);
    add_refusal_cases(list);
    add_input_scale_cases(list);
    add_agreement_cases(list);
    add_fault_cases(list);
    add_stress_cases(list);
    add_large_cases(list);
    add_report_cases(list);
    add_statistics_cases(list);
    add_process_cases(list);
    for (Case& each : list) each = skipped_by_rounds(std::move(each));
    return list;
  }();
  return cases;
}

}  // namespace ferry::conformance
