// Compares one rank's outputs with the oracle's, and runs rounds.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "conformance/oracle/size.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

using test::size;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string hex(std::byte value) {
  constexpr const char* kDigits = "0123456789abcdef";
  const auto bits = std::to_integer<unsigned>(value);
  return std::string("0x") + kDigits[bits >> 4] + kDigits[bits & 15];
}

}  // namespace

void expect_equal(int rank, const std::string& place, std::uint64_t expected, std::uint64_t got) {
  if (expected != got) throw Failure(rank, place, std::to_string(expected), std::to_string(got));
}

void expect_equal(int rank, const std::string& place, const std::string& expected, const std::string& got) {
  if (expected != got) throw Failure(rank, place, expected, got);
}

namespace {

// Of rows that are not touched, half of the poison.
std::vector<std::uint16_t> in_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> narrow;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_untouched = bits == static_cast<std::uint32_t>(test::kUntouched);
    narrow.push_back(is_untouched ? static_cast<std::uint16_t>(bits) : test::to_bf16(value));
  }
  return narrow;
}

}  // namespace

void RankRound::check_bytes(const char* name, const std::vector<std::byte>& got, std::vector<std::byte> expected,
                            std::size_t row_bytes) const {
  expected.resize(got.size(), kPoison);
  if (expected == got) return;
  std::size_t at = 0;
  while (expected[at] == got[at]) ++at;
  const std::string place = std::string(name) + " byte " + std::to_string(at) + " (row " +
                            std::to_string(at / row_bytes) + ", byte " + std::to_string(at % row_bytes) +
                            "; 0xa5 is what was there before the call)";
  throw Failure(rank_, place, hex(expected[at]), hex(got[at]));
}

void RankRound::check_rows() const {
  const AnyFormat& format = scenario_.round.options.format;
  const bool padded = given_.row_order == RowOrder::padded, by_source = given_.row_order == RowOrder::by_source;
  const LeftOut& left_out = scenario_.settings.left_out;
  const std::vector<std::byte> none;
  check_bytes("row_offsets", row_offsets, left_out.row_offsets ? none : bytes_of(expected_.row_offsets), 4);
  check_bytes("expert_ids", expert_ids, left_out.expert_ids ? none : bytes_of(expected_.expert_ids), 4);
  const bool own_counts = padded && more_ == nullptr;            // else they are in the memory of more_
  const bool counted = own_counts || (by_source && out.counts);  // a replay of a dispatch by counts has none
  check_bytes("counts", counts, counted ? bytes_of(expected_.counts) : std::vector<std::byte>{}, 4);
  check_bytes("src_info", src_info, left_out.src_info ? none : bytes_of(expected_.src_info), 8);
  check_bytes("source_offsets", source_offsets, bytes_of(expected_.source_offsets), 4);
  const std::vector<std::int32_t> narrow(expected_.row_topk_ids.begin(), expected_.row_topk_ids.end());
  const bool by_counts = scenario_.settings.by_counts;
  check_bytes("row_topk_ids", row_topk_ids,
              by_counts                                   ? std::vector<std::byte>{}
              : scenario_.settings.id_dtype == DType::i64 ? bytes_of(expected_.row_topk_ids)
                                                          : bytes_of(narrow),
              size(scenario_.round.shape.top_k) * size_of(scenario_.settings.id_dtype));
  check_bytes("row_topk_weights", row_topk_weights,
              by_counts ? std::vector<std::byte>{} : bytes_of(expected_.row_topk_weights),
              size(scenario_.round.shape.top_k) * 4);
  if (given_.row_order == RowOrder::in_place)
    check_slots();
  else
    check_bytes("gather", gather, {}, 4);
  check_bytes("payload", payload, expected_.payload, format.payload_bytes(scenario_.round.shape.hidden));
  const int per_row = scales_per_row(format, scenario_.round.shape.hidden);
  const bool has_scales = out.scales || given_.row_order == RowOrder::in_place;
  if (per_row != 0)
    check_bytes("scales", scales, has_scales ? expected_.scales : none, size(per_row * format.scale_bytes()));
  check_bytes("scales_offsets", scales_offsets, has_scales ? bytes_of(expected_.scales_offsets) : none, 4);
  if (more_ != nullptr) more_->check();
  if (out.global_scales.dtype == DType::bf16)
    check_bytes("global_scales", global_scales, bytes_of(in_bf16(expected_.global_scales)), 2);
  else
    check_bytes("global_scales", global_scales, bytes_of(expected_.global_scales), 4);
}

// Which copy of the slots a dispatch fills is not promised, but it is one.
void RankRound::check_slots() const {
  const std::int64_t slots_of_copy =
      std::int64_t{scenario_.settings.options.skip_a2a ? 1 : scenario_.round.shape.ranks} *
      scenario_.round.shape.max_tokens;
  std::vector<std::int32_t> expected;
  std::int64_t copy = -1;
  for (std::size_t row = 0; row < expected_.slots.size(); ++row) {
    std::int32_t slot = 0;
    std::memcpy(&slot, gather.data() + row * sizeof slot, sizeof slot);
    if (copy < 0 && expected_.slots[row] >= 0) copy = slot / slots_of_copy;
    expected.push_back(static_cast<std::int32_t>(
        expected_.slots[row] < 0 ? -1 : expected_.slots[row] + std::max<std::int64_t>(copy, 0) * slots_of_copy));
  }
  check_bytes("gather", gather, bytes_of(expected), 4);
}

// What a gathering matmul would read. A slot that does not exist leaves the poison.
void RankRound::read_slots(const ArrivalSlots& slots) {
  if (given_.row_order != RowOrder::in_place) return;
  const std::size_t payload_bytes = scenario_.round.options.format.payload_bytes(scenario_.round.shape.hidden);
  const std::size_t scale_bytes = size_of(slots.scales.dtype);
  const std::int64_t sources = slots.payload.shape[1], per_source = slots.payload.shape[2];
  for (std::size_t row = 0; row < expected_.slots.size(); ++row) {
    std::int32_t slot = 0;
    std::memcpy(&slot, gather.data() + row * sizeof slot, sizeof slot);
    if (slot < 0 || slot >= slots.payload.shape[0] * sources * per_source) continue;
    const std::int64_t place[] = {slot / (sources * per_source), slot / per_source % sources, slot % per_source};
    const auto address = [&place](const ConstTensor& of) {
      std::int64_t offset = 0;
      for (std::size_t axis = 0; axis < std::size(place); ++axis) offset += place[axis] * of.strides[axis];
      return static_cast<const std::byte*>(of.data) + size(offset) * size_of(of.dtype);
    };
    std::memcpy(payload.data() + row * payload_bytes, address(slots.payload), payload_bytes);
    const std::size_t bytes = slots.scales ? size(slots.scales.shape[3]) * scale_bytes : 0;
    if (bytes != 0) std::memcpy(scales.data() + row * bytes, address(slots.scales), bytes);
    if (slots.global_scales)
      std::memcpy(global_scales.data() + row * sizeof(float), address(slots.global_scales), sizeof(float));
  }
}

void RankRound::check_untouched() const {
  if (more_ != nullptr) more_->check_untouched();
  for (const auto& [name, bytes] :
       {std::pair{"payload", &payload}, std::pair{"scales", &scales}, std::pair{"row_offsets", &row_offsets},
        std::pair{"expert_ids", &expert_ids}, std::pair{"src_info", &src_info}, std::pair{"counts", &counts},
        std::pair{"row_topk_ids", &row_topk_ids}, std::pair{"row_topk_weights", &row_topk_weights},
        std::pair{"source_offsets", &source_offsets}, std::pair{"gather", &gather},
        std::pair{"scales_offsets", &scales_offsets}, std::pair{"combine's tokens", &output},
        std::pair{"combine's topk_weights", &returned}, std::pair{"global_scales", &global_scales}})
    check_bytes(name, *bytes, {}, 1);
}

void RankRound::check_returned_weights() const {
  check_bytes("combine's topk_weights", returned,
              bytes_of(test::expected_weights(scenario_.round, scenario_.rows, scenario_.row_weights, rank_)),
              size(scenario_.round.shape.top_k) * 4);
}

void RankRound::check_tokens() const {
  const ScenarioSettings& s = scenario_.settings;
  if (s.options.returns_weights) check_returned_weights();
  const std::vector<float> expected =
      s.unreduced ? test::expected_unreduced(scenario_.round, scenario_.rows, scenario_.expert_output, rank_)
                  : test::expected_tokens(scenario_.round, scenario_.rows, scenario_.expert_output, rank_);
  if (s.epilogue) return check_epilogue(expected);
  std::vector<std::byte> bytes(output.size(), kPoison);
  std::vector<float> got;
  const std::size_t step = s.unreduced ? size(s.shape.hidden) : size(s.shape.hidden + s.output_gap);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t at = (i / size(s.shape.hidden) * step + i % size(s.shape.hidden)) * size_of(s.output_dtype);
    if (s.output_dtype == DType::f32) {
      std::memcpy(bytes.data() + at, &expected[i], 4);
      std::memcpy(&got.emplace_back(), output.data() + at, 4);
    } else {
      const bool is_f16 = s.output_dtype == DType::f16;
      const std::uint16_t bits = is_f16 ? test::to_f16(expected[i]) : test::to_bf16(expected[i]);
      std::memcpy(bytes.data() + at, &bits, 2);
      std::uint16_t got_bits = 0;
      std::memcpy(&got_bits, output.data() + at, 2);
      got.push_back(is_f16 ? test::from_f16(got_bits) : test::from_bf16(got_bits));
    }
    // Which NaN it is depends on the processor.
    if (std::isnan(expected[i]) && std::isnan(got.back()))
      std::memcpy(bytes.data() + at, output.data() + at, size_of(s.output_dtype));
  }
  check_bytes("combine's tokens", output, bytes, step * size_of(s.output_dtype));
  if (scenario_.round.reduction == Reduction::by_rank && !s.extremes) check_bound(got);
}

void RankRound::check_epilogue(const std::vector<float>& expected) const {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string place = "epilogue at token " + std::to_string(i / size(collected_.hidden)) + ", column " +
                              std::to_string(i % size(collected_.hidden));
    expect_equal(rank_, place + ": calls", 1, collected_.calls[i]);
    if (std::memcmp(&expected[i], &collected_.values[i], sizeof(float)) != 0)
      throw Failure(rank_, place, std::to_string(expected[i]), std::to_string(collected_.values[i]));
  }
}

void RankRound::check_bound(const std::vector<float>& got) const {
  const test::Float64Tokens exact =
      test::float64_tokens(scenario_.round, scenario_.rows, scenario_.expert_output, rank_);
  // The last rounding: at most 2^-8 of the unrounded sum in bf16, 2^-11 in float16; here from the rounded one.
  const DType dtype = scenario_.settings.output_dtype;
  const double of_value = dtype == DType::bf16 ? 0x1.02p-8 : dtype == DType::f16 ? 0x1.02p-11 : 0.0;
  const double of_tiny = dtype == DType::bf16 ? 0x1p-134 : dtype == DType::f16 ? 0x1p-25 : 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(got[i]);
    const double bound = exact.by_rank_bound[i] + (of_value == 0.0 ? 0.0 : of_value * std::fabs(value) + of_tiny);
    if (!(std::fabs(value - exact.values[i]) <= bound))
      throw Failure(rank_, "by_rank at token " + std::to_string(i / size(scenario_.round.shape.hidden)),
                    std::to_string(exact.values[i]) + " within " + std::to_string(bound), std::to_string(value));
  }
}

void expect_error(int rank, const std::string& place, ErrorKind kind, const std::vector<std::string>& fragments,
                  const std::function<void()>& call) {
  const std::string wanted = std::string("an error: ") + to_string(kind);
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != kind)
      throw Failure(rank, place, wanted, std::string(to_string(error.kind())) + ": " + error.what());
    for (const std::string& fragment : fragments)
      if (std::string(error.what()).find(fragment) == std::string::npos)
        throw Failure(rank, place, wanted + " that says \"" + fragment + "\"", error.what());
    return;
  }
  throw Failure(rank, place, wanted, "no error");
}

GivenBytes::GivenBytes(const DispatchInput& in) {
  add("tokens", in.tokens);
  add("token_scales", in.token_scales);
  add("token_global_scales", in.token_global_scales);
  add("topk_ids", in.topk_ids);
  add("topk_weights", in.topk_weights);
  add("in_rank", in.in_rank);
  add("expert_counts", in.expert_counts);
  add("handle", in.handle);
  add("input_scale", ConstTensor(in.input_scale, DType::f32, {1}));
}

GivenBytes::GivenBytes(const CombineInput& in) {
  add("rows", in.rows);
  add("src_info", in.src_info);
  add("topk_weights", in.topk_weights);
  add("handle", in.handle);
  for (const ConstTensor& bias : in.bias) add("bias", bias);
  add("row_topk_weights", in.row_topk_weights);
}

void GivenBytes::add(const char* name, const ConstTensor& tensor) {
  if (!tensor || tensor.elements() == 0) return;
  std::int64_t last = 0;  // element
  for (std::size_t axis = 0; axis < size(tensor.rank); ++axis) last += (tensor.shape[axis] - 1) * tensor.strides[axis];
  const auto* first = tensor.as<std::byte>();
  all_.push_back({name, first, {first, first + size(last + 1) * size_of(tensor.dtype)}});
}

void GivenBytes::leave_out(const Tensor& written) {
  std::erase_if(all_, [&](const Given& given) { return given.at == written.data; });
}

void GivenBytes::check(int rank) const {
  for (const Given& given : all_)
    if (std::memcmp(given.at, given.bytes.data(), given.bytes.size()) != 0)
      throw Failure(rank, std::string(given.name) + ", which the call was given", "the bytes from before the call",
                    "others");
}

void run_dispatch(Exchange& exchange, RankRound& round, Form form) {
  GivenBytes given(round.in);
  given.leave_out(round.out.handle);
  if (form == Form::one_call) {
    exchange.dispatch(round.in, round.out, round.call);
  } else {
    exchange.dispatch_async(round.in, round.call);
    exchange.dispatch_wait(round.out, round.call);
  }
  if (round.in.row_order == RowOrder::in_place) round.read_slots(exchange.arrival_slots(round.in.format));
  given.check(exchange.rank());
}

void run_combine(Exchange& exchange, const RankRound& round, Form form) {
  const GivenBytes given(round.combine_in);
  if (form == Form::one_call) {
    exchange.combine(round.combine_in, round.combine_out, round.call);
  } else {
    exchange.combine_async(round.combine_in, round.call);
    exchange.combine_wait(round.combine_out, round.call);
  }
  given.check(exchange.rank());
}

void run_round(Exchange& exchange, const Scenario& scenario, Form form) {
  RankRound round(scenario, exchange.rank());
  run_dispatch(exchange, round, form);
  std::exception_ptr failed;  // thrown after combine, which the other ranks wait for
  try {
    round.check_rows();
  } catch (const Failure&) {
    failed = std::current_exception();
  }
  run_combine(exchange, round, form);
  if (failed) std::rethrow_exception(failed);
  round.check_tokens();
}

namespace {

void skip_round(const Target& target, const std::string& why) {
  if (target.tally == nullptr) throw Skipped(why);
  target.tally->skip(why);
}

}  // namespace

bool is_wanted(const Target& target, int ranks, const std::string& what) {
  if (ranks > target.max_ranks) {
    skip_round(target,
               "needs " + std::to_string(ranks) + " ranks; the backend has " + std::to_string(target.max_ranks));
    return false;
  }
  return !target.runs_round || target.runs_round(what);
}

void run_wanted(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body) {
  try {
    target.run_ranks(ranks, body);
    if (target.tally != nullptr) ++target.tally->run;
  } catch (const Skipped& skipped) {
    skip_round(target, skipped.what());
  } catch (const Failure& failure) {
    throw Failure(failure.rank(), failure.place() + " [" + what + "]", failure.expected(), failure.got());
  } catch (const Error& error) {
    throw Failure(-1, "[" + what + "]", "no error", std::string(to_string(error.kind())) + ": " + error.what());
  }
}

void on_ranks(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body) {
  if (is_wanted(target, ranks, what)) run_wanted(target, ranks, what, body);
}

void require_orders(const World& world, const ScenarioSettings& settings) {
  const RowOrders possible = world.capabilities().row_orders;
  for (const RowOrder order : settings.row_orders)
    if (!possible.has(order))
      throw Skipped(std::string("the exchanges of this world lay out no rows ") + to_string(order));
  if ((settings.more_outputs || settings.zero_padding) && !world.capabilities().more_outputs)
    throw Skipped("the exchanges of this world do not fill all outputs");
  if (settings.overflow != Overflow::refused && !world.capabilities().overflow)
    throw Skipped("the exchanges of this world write all rows that come");
}

void require_settings(const World& world, const ScenarioSettings& settings) {
  const WorldCapabilities can = world.capabilities();
  if (settings.weight_dtype != DType::f32 && !can.narrow_weights)
    throw Skipped("the exchanges of this world take f32 weights");
  if (settings.options.dynamic_scales && !can.dynamic_scales)
    throw Skipped("the exchanges of this world encode with input_scale alone");
  if (settings.by_counts && !can.counts_dispatch) throw Skipped("the exchanges of this world dispatch by ids only");
  if (settings.options.returns_weights && !can.returned_weights)
    throw Skipped("the exchanges of this world send no weights home");
  if (settings.options.late_weights && !can.late_weights)
    throw Skipped("the exchanges of this world take no late weights");
  for (const DType dtype : {settings.row_dtype, settings.bias_dtype, settings.output_dtype})
    if (dtype == DType::f16 && !can.f16_sums) throw Skipped("the exchanges of this world have no f16 sums");
}

ScenarioSettings fitted(const Target& target, ScenarioSettings settings) {
  const bool names_ranks = !settings.options.mask.empty() || !settings.gone.empty();
  if (!names_ranks) settings.shape.ranks = std::min(settings.shape.ranks, target.max_ranks);
  return settings;
}

void run_scenario(const Target& target, const ScenarioSettings& wanted, Form form) {
  const ScenarioSettings settings = fitted(target, wanted);
  const std::string what = describe(settings);
  if (!is_wanted(target, settings.shape.ranks, what)) return;
  const Scenario scenario = make_scenario(settings);
  run_wanted(target, settings.shape.ranks, what, [&](World& world) {
    if (test::is_masked_out(scenario.round, world.rank())) return;
    require_orders(world, settings);
    require_settings(world, settings);
    Exchange exchange(world, settings.shape, exchange_options(settings_at(settings, world.rank())));
    run_round(exchange, scenario, form);
  });
}

}  // namespace ferry::conformance
