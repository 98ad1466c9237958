// The files of cases, by folder: each adds its own to the list.
#pragma once

#include <vector>

#include "conformance/target/case.h"

namespace ferry::conformance {

using Cases = std::vector<Case>;

// shapes/
void add_routing_cases(Cases& cases);      // named shapes and routings, every format
void add_random_cases(Cases& cases);       // random configurations by seed
void add_combination_cases(Cases& cases);  // options that meet: pairs, or the product
void add_large_cases(Cases& cases);        // over a thousand tokens on a rank
void add_stress_cases(Cases& cases);       // many rounds with pauses

// calls/
void add_call_cases(Cases& cases);    // forms of the calls, rounds, order of calls
void add_handle_cases(Cases& cases);  // routings that are kept and used again
void add_masked_handle_cases(Cases& cases);
void add_weight_cases(Cases& cases);  // weights that come late
void add_returned_weight_cases(Cases& cases);
void add_reduction_cases(Cases& cases);  // combines that choose their reduction
void add_counts_cases(Cases& cases);     // dispatches by counts
void add_format_cases(Cases& cases);     // exchanges with several formats
void add_extreme_cases(Cases& cases);    // results that are not finite
void add_own_cases(Cases& cases);        // what may differ between ranks

// rows/
void add_order_cases(Cases& cases);     // orders of rows
void add_output_cases(Cases& cases);    // outputs of a dispatch that may be left out
void add_waiting_cases(Cases& cases);   // waiting times
void add_overflow_cases(Cases& cases);  // rows for which there is no room
void add_size_cases(Cases& cases);      // rows that are counted before they are written, outputs of exact size
void add_excess_cases(Cases& cases);    // more tokens than a dispatch can take
void add_option_cases(Cases& cases);    // hooks, dtypes, strides, alignment, shared expert, skip_a2a
void add_bytes_cases(Cases& cases);     // formats whose bytes nobody looks at

// worlds/
void add_world_cases(Cases& cases);  // all_gather and barrier
void add_capability_cases(Cases& cases);
void add_process_cases(Cases& cases);  // one call for all exchanges of a process
void add_release_cases(Cases& cases);  // memory that is given back and taken again
void add_shared_memory_cases(Cases& cases);
void add_shared_memory_end_cases(Cases& cases);
void add_report_cases(Cases& cases);  // memory, rows that fit exactly, slow ranks
void add_statistics_cases(Cases& cases);

// faults/
void add_refusal_cases(Cases& cases);  // bad input
void add_input_scale_cases(Cases& cases);
void add_agreement_cases(Cases& cases);  // options that differ between ranks
void add_fault_cases(Cases& cases);      // missing ranks, deadlines, masks

}  // namespace ferry::conformance
