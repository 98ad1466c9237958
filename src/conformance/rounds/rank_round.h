// RankRound: one rank's tensors for one scenario, poisoned before the call and compared byte for byte after it. Cases
// may spoil a view (a wrong dtype, a bad id) before they call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/rounds/more_outputs.h"
#include "conformance/rounds/scenario.h"
#include "conformance/target/case.h"
#include "conformance/target/target.h"

namespace ferry::conformance {

class RankRound {
 public:
  RankRound(const Scenario& scenario, int rank);
  RankRound(const RankRound&) = delete;
  RankRound& operator=(const RankRound&) = delete;

  DispatchInput in;
  DispatchOutput out;
  CombineInput combine_in;
  CombineOutput combine_out;
  CallOptions call;

  // Every byte of every output of dispatch, those that must stay as they were included.
  void check_rows() const;
  // Combine's output bit for bit; and for by_rank its distance from the float64 sum.
  void check_tokens() const;
  // Nothing was written at all.
  void check_untouched() const;

  // in_place: reads the rows out of the slots, after a dispatch. run_dispatch does it.
  void read_slots(const ArrivalSlots& slots);

  // The extra outputs that ScenarioSettings::more_outputs asks for; null where it asks for none.
  MoreOutputs* more() { return more_.get(); }

  // Memory behind the views, for cases that spoil it.
  std::vector<std::byte> tokens, token_scales, topk_ids, weights, rows, payload, scales, row_offsets, expert_ids,
      src_info, scales_offsets, counts, row_topk_ids, row_topk_weights, source_offsets, gather, output, bias[kMaxBias],
      returned, global_scales, in_rank;

  std::vector<float> token_global_scales, row_weights;
  std::vector<std::int32_t> expert_counts;

 private:
  // What the epilogue was called with, and how often for each column. Columns come from any thread, but each only once.
  struct Collected {
    int hidden = 0;
    std::vector<float> values;
    std::vector<std::uint8_t> calls;
  };
  struct WeightTable {
    const std::vector<float>* values = nullptr;
    int top_k = 0;
  };

  static std::unique_ptr<const Scenario> own_of(const Scenario& scenario, int rank);
  void make_input();
  bool gives_encoded() const;
  void make_encoded_tokens();
  void make_counts_input();
  void make_output();
  void make_outputs_of_order();
  void make_combine_input();
  void make_bias(std::size_t index);
  void make_combine_output();
  void make_returned_weights();
  void check_bytes(const char* name, const std::vector<std::byte>& got, std::vector<std::byte> expected,
                   std::size_t row_bytes) const;
  void check_slots() const;
  void check_epilogue(const std::vector<float>& expected) const;
  void check_returned_weights() const;
  void check_bound(const std::vector<float>& got) const;

  std::unique_ptr<const Scenario> own_;  // where ranks differ
  const Scenario& scenario_;
  int rank_;
  const test::RankInput& given_;
  const test::ExpectedRows& expected_;
  WeightTable weight_table_;
  Collected collected_;
  std::unique_ptr<MoreOutputs> more_;
};

// Throws Failure unless the two are equal.
void expect_equal(int rank, const std::string& place, std::uint64_t expected, std::uint64_t got);
void expect_equal(int rank, const std::string& place, const std::string& expected, const std::string& got);

// Throws Failure unless `call` throws an Error of this kind whose text holds every fragment.
void expect_error(int rank, const std::string& place, ErrorKind kind, const std::vector<std::string>& fragments,
                  const std::function<void()>& call);

// What a call only reads, as it was before: tensors in host memory, and the input scale.
class GivenBytes {
 public:
  explicit GivenBytes(const DispatchInput& in);
  explicit GivenBytes(const CombineInput& in);
  // Of a handle that the call may overwrite.
  void leave_out(const Tensor& written);
  // Throws Failure unless the bytes are what they were.
  void check(int rank) const;

 private:
  struct Given {
    const char* name;
    const void* at;
    std::vector<std::byte> bytes;
  };
  void add(const char* name, const ConstTensor& tensor);
  std::vector<Given> all_;
};

enum class Form { split, one_call };  // _async and _wait, or both in one call

void run_dispatch(Exchange& exchange, RankRound& round, Form form);
void run_combine(Exchange& exchange, const RankRound& round, Form form);

// Dispatch, check, combine, check.
void run_round(Exchange& exchange, const Scenario& scenario, Form form);

// Whether the target runs the round that is described so. One of too many ranks is skipped.
bool is_wanted(const Target& target, int ranks, const std::string& what);

// Runs `body` on all ranks of a target that wants it. An error becomes a Failure that says what ran; a body that throws
// Skipped is a round that is skipped.
void run_wanted(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body);

// Both. Who makes a scenario first, which takes long, calls them one by one.
void on_ranks(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body);

// Throws Skipped where exchanges of this world cannot do the orders of rows or fill the outputs: all ranks of a world
// agree on that.
void require_orders(const World& world, const ScenarioSettings& settings);

// The same for what else a scenario asks of a world.
void require_settings(const World& world, const ScenarioSettings& settings);

// The same settings on as many ranks as the target has, where these are fewer and no setting names a rank.
ScenarioSettings fitted(const Target& target, ScenarioSettings settings);

// Makes an exchange on every rank and runs one round on it; on fewer ranks where the target has not as many.
void run_scenario(const Target& target, const ScenarioSettings& settings, Form form = Form::split);

}  // namespace ferry::conformance
