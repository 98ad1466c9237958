#include "gpu/stress/stress_rank.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ferry/exchange.h"
#include "gpu/captured_graph.h"
#include "gpu/stress/stress_outputs.h"

namespace ferry::stress {
namespace {

Layout layout_of(ScaleLayout layout) {
  if (layout == ScaleLayout::row_major) return Layout::row_major;
  if (layout == ScaleLayout::transposed) return Layout::transposed;
  return layout == ScaleLayout::tiled ? Layout::tiled : Layout::none;
}

ExchangeOptions options_of(const Config& config) {
  ExchangeOptions options;
  options.format = format_named(name_of(config.format));
  options.reduction = config.exact ? Reduction::exact : Reduction::by_rank;
  options.fused_shared_expert = config.shared;
  options.expert_alignment = config.alignment;
  options.tiled_scales = config.tiled;
  options.message_copies = config.message_copies;
  options.result_format = result_format_named(name_of(config.result));
  options.row_orders = kUsualRowOrders;
  if (config.sources)
    options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  return options;
}

// The orders in which dispatches of a segment lay out rows. Padded ones only where that takes no gigabytes; tiles of
// padded rows are left to the conformance suite.
RowOrders orders_of(const Config& config, const RowLayout& layout) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 29;
  std::uint8_t bits = RowOrders{RowOrder::by_expert}.bits();
  const auto add = [&](RowOrder order) { bits = static_cast<std::uint8_t>(bits | RowOrders{order}.bits()); };
  if (config.sources) add(RowOrder::by_source);
  if (!config.shared) add(RowOrder::in_place);
  if (layout.scale_layout != ScaleLayout::tiled &&
      layout.least_rows(RowOrder::padded) * 2 * config.hidden <= kMostBytes)
    add(RowOrder::padded);
  return RowOrders::of_bits(bits);
}

// Dealt out: consecutive experts, the first experts % ranks ranks get one more.
std::vector<int> owners(int experts, int ranks) {
  std::vector<int> owner;
  for (int rank = 0; rank < ranks; ++rank)
    owner.insert(owner.end(), static_cast<std::size_t>(experts / ranks + (rank < experts % ranks ? 1 : 0)), rank);
  return owner;
}

class RankSegment {
 public:
  RankSegment(World& world, const Segment& segment)
      : segment_(segment),
        rank_(world.rank()),
        exchange_(
            world,
            {world.size(), segment.config.experts, segment.config.top_k, segment.max_tokens, segment.config.hidden},
            options_of(segment.config)),
        orders_(orders_of(segment.config, exchange_.layout())),
        outputs_(arena_, exchange_.layout(), orders_) {
    const RowLayout& layout = exchange_.layout();
    const Config& config = segment.config;
    const std::vector<int> owner = owners(config.experts, world.size());
    setting_ = {.ranks = world.size(),
                .rank = rank_,
                .experts = config.experts,
                .top_k = config.top_k,
                .max_tokens = segment.max_tokens,
                .hidden = config.hidden,
                .format = config.format,
                .result = config.result,
                .layout = layout_of(layout.scale_layout),
                .exact = config.exact,
                .shared = config.shared,
                .half = config.half,
                .wide_ids = config.wide_ids,
                .input_scale = config.input_scale,
                .alignment = layout.alignment,
                .groups = layout.groups,
                .first_expert = static_cast<int>(std::find(owner.begin(), owner.end(), rank_) - owner.begin()),
                .stride = layout.expert_rows,
                .owner = nullptr};
    plan(layout);
    check(
        cudaMemcpy(const_cast<int*>(setting_.owner), owner.data(), owner.size() * sizeof(int), cudaMemcpyHostToDevice),
        "cudaMemcpy");
    check(cudaMemset(verdict_, 0, sizeof(Verdict)), "cudaMemset");
    check(cudaMemcpy(input_scale_, &config.input_scale, sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  // What every round of a replayed segment calls.
  void capture() {
    const Calls calls = calls_of(segment_.first_round);
    const Round round = round_of(segment_.first_round, calls);
    dispatch_graph_.emplace(arena_.stream(), [&] { dispatch(round, calls); });
    combine_graph_.emplace(arena_.stream(), [&] { combine(round, calls.returned); });
    wait();
  }

  void run(unsigned number) {
    const Calls calls = calls_of(number);
    const Round round = round_of(number, calls);
    cudaStream_t stream = arena_.stream();
    const unsigned index = number - segment_.first_round;
    if (index > 0 && index % segment_.rounds_at_once == 0) wait();
    make_inputs(setting_, round, inputs_, stream);
    const auto poison = static_cast<std::uint8_t>(draw(segment_.seed, number, 1) | 0x80u);
    const RowOrder order = round.order[rank_];
    outputs_.poison(order, poison);
    poison_sums(poison);
    delay(delay_of(number, 2), stream);
    if (dispatch_graph_)
      dispatch_graph_->launch(stream);
    else
      dispatch(round, calls);
    if (calls.kept >= 0) kept_[calls.kept] = round;
    if (segment_.damage && number == segment_.first_round + segment_.rounds / 2 && rank_ == 0)
      damage(outputs_.of(order).src_info.data, 0, stream);
    check_rows(setting_, round, inputs_, outputs_.written(order, poison), scratch_, verdict_, stream);
    if (draw(segment_.seed, number, 3) % 16 == 0) return;  // the next dispatch abandons the round
    delay(delay_of(number, 4), stream);
    if (combine_graph_)
      combine_graph_->launch(stream);
    else
      combine(round, calls.returned);
    check_sums(setting_, round, inputs_, arena_.at<void>(sums_), sums_are_wide(number), verdict_, stream);
    combine_late(number);
  }

  Verdict finish() {
    wait();
    exchange_.check();
    Verdict verdict{};
    check(cudaMemcpy(&verdict, verdict_, sizeof verdict, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return verdict;
  }

 private:
  // Which of the handles a round's calls are given, or leave; -1: none.
  struct Calls {
    int given = -1;     // to dispatch: a replay
    int kept = -1;      // by dispatch
    int returned = -1;  // to combine
  };
  static constexpr unsigned kHandles = 2;

  void wait() const { check(cudaStreamSynchronize(arena_.stream()), "cudaStreamSynchronize"); }

  void plan(const RowLayout& layout) {
    const std::int64_t n = segment_.max_tokens, k = setting_.top_k;
    const std::size_t hidden = static_cast<std::size_t>(setting_.hidden);
    std::int64_t rows = 0;  // of combine
    for (int order = 0; order < kRowOrders; ++order)
      if (orders_.has(static_cast<RowOrder>(order))) rows = std::max(rows, outputs_.rows(static_cast<RowOrder>(order)));
    const std::size_t owner = arena_.plan(setting_.experts, 4), verdict = arena_.plan(1, sizeof(Verdict));
    const std::size_t tokens = arena_.plan(n, 2 * hidden), ids = arena_.plan(n * k, 8), weights = arena_.plan(n * k, 4);
    const std::size_t all_ids = arena_.plan(setting_.ranks * n * k, 4), input_scale = arena_.plan(1, 4);
    const std::size_t starts = arena_.plan(layout.groups + 1, 4), counts = arena_.plan(layout.groups, 4);
    const std::size_t tiles = arena_.plan(layout.groups, 4), comes = arena_.plan(setting_.ranks * n, 1);
    const std::size_t results = arena_.plan(rows, 2 * hidden);
    for (std::size_t& handle : handles_) handle = arena_.plan(layout.handle_bytes, 1);
    sums_ = arena_.plan(n, 4 * hidden);
    arena_.allocate();
    setting_.owner = arena_.at<int>(owner);
    verdict_ = arena_.at<Verdict>(verdict);
    input_scale_ = arena_.at<float>(input_scale);
    inputs_ = {arena_.at<std::uint16_t>(tokens), arena_.at<void>(ids), arena_.at<float>(weights),
               arena_.at<int>(all_ids)};
    scratch_ = {arena_.at<unsigned>(starts), arena_.at<unsigned>(counts), arena_.at<unsigned>(tiles),
                arena_.at<std::uint8_t>(comes), arena_.at<std::uint16_t>(results)};
  }
  Slots slots() const {
    const ArrivalSlots slots = exchange_.arrival_slots();
    const auto pitch = [](const ConstTensor& tensor) {
      return tensor.strides[2] * static_cast<std::int64_t>(size_of(tensor.dtype));
    };
    return {slots.payload.as<std::uint8_t>(), slots.scales.as<std::uint8_t>(), pitch(slots.payload),
            slots.scales ? pitch(slots.scales) : 0,
            slots.payload.shape[0] * slots.payload.shape[1] * slots.payload.shape[2]};
  }

  // The round that says how a round's calls are made: a graph keeps those of its capture.
  unsigned called_as(unsigned number) const { return segment_.replayed ? segment_.first_round : number; }
  Round round_of(unsigned number, const Calls& calls) const {
    const unsigned seed = draw(segment_.seed, number, 0);
    Round round{number, seed, number, seed, {}, {}};
    if (calls.given >= 0) {
      round = *kept_[calls.given];
      round.number = number;
      round.seed = seed;
      return round;
    }
    for (int rank = 0; rank < setting_.ranks; ++rank) {
      round.tokens[rank] = tokens_of(called_as(number), static_cast<unsigned>(rank));
      round.order[rank] = order_of(called_as(number), static_cast<unsigned>(rank));
    }
    return round;
  }
  // Each rank has its own. Half of them by_expert.
  RowOrder order_of(unsigned number, unsigned rank) const {
    const unsigned x = draw(segment_.seed, number, 200 + rank);
    const auto order = static_cast<RowOrder>((x >> 8) % kRowOrders);
    return x % 2 == 0 && orders_.has(order) ? order : RowOrder::by_expert;
  }
  // A quarter of the dispatches are replays, as soon as there are handles, and a quarter leave one; half of the
  // combines of those are given it. The same on all ranks. Graphs are captured before there is a handle.
  Calls calls_of(unsigned number) const {
    const unsigned x = draw(segment_.seed, called_as(number), 8);
    const int handle = static_cast<int>((x >> 8) % kHandles);
    Calls calls;
    if (x % 4 == 0) calls.kept = handle;
    if (x % 4 == 1 && !segment_.replayed && kept_[handle]) calls.given = handle;
    calls.returned = calls.given;  // the combine of a replay needs its handle
    if (calls.kept >= 0 && (x >> 16) % 2 == 0) calls.returned = calls.kept;
    return calls;
  }

  // A combine of an earlier dispatch, beside the rounds: with other answers, and once more for some.
  void combine_late(unsigned number) {
    const unsigned x = draw(segment_.seed, number, 9);
    const int handle = static_cast<int>((x >> 8) % kHandles);
    if (x % 4 != 0 || !kept_[handle]) return;
    Round late = *kept_[handle];
    late.number = number;
    late.seed = draw(segment_.seed, number, 10);
    cudaStream_t stream = arena_.stream();
    make_inputs(setting_, late, inputs_, stream);
    make_results(setting_, late, inputs_, scratch_, verdict_, stream);
    poison_sums(0xFF);
    delay(delay_of(number, 11), stream);
    combine(late, handle);
    check_sums(setting_, late, inputs_, arena_.at<void>(sums_), sums_are_wide(number), verdict_, stream);
  }
  void poison_sums(std::uint8_t poison) const {
    const std::size_t bytes =
        static_cast<std::size_t>(segment_.max_tokens) * 4 * static_cast<std::size_t>(setting_.hidden);
    check(cudaMemsetAsync(arena_.at<void>(sums_), poison, bytes, arena_.stream()), "cudaMemsetAsync");
  }
  Tensor handle_at(int index) const {
    return {arena_.at<void>(handles_[index]), DType::u8, {exchange_.layout().handle_bytes}};
  }

  bool sums_are_wide(unsigned number) const { return draw(segment_.seed, called_as(number), 6) % 2 == 0; }

  // Any number from none to all, and now and then exactly these.
  int tokens_of(unsigned number, unsigned rank) const {
    const unsigned x = draw(segment_.seed, number, 100 + rank);
    if (x % 16 == 0) return 0;
    if (x % 16 == 1) return segment_.max_tokens;
    return static_cast<int>((x >> 8) % static_cast<unsigned>(segment_.max_tokens + 1));
  }
  // Up to 20 us, and in one of 64 up to 400 us; other on each rank.
  unsigned delay_of(unsigned number, unsigned what) const {
    const unsigned x = draw(segment_.seed, number, 1000 + 16 * what + static_cast<unsigned>(rank_));
    return x % 64 == 0 ? (x >> 8) % 400'000 : (x >> 8) % 20'000;
  }

  // No limit in half of the calls, few blocks in the others, whose dispatch is another kernel; other on each rank.
  int max_blocks_of(unsigned number, unsigned what) const {
    static constexpr int kLimits[] = {0, 0, 0, 0, 3, 4, 8, 24};
    return kLimits[draw(segment_.seed, number, 2000 + 16 * what + static_cast<unsigned>(rank_)) % std::size(kLimits)];
  }

  void dispatch(const Round& round, const Calls& calls) {
    const std::int64_t n = round.tokens[rank_], hidden = setting_.hidden;
    const unsigned number = called_as(round.number);
    DispatchInput in;
    in.tokens = {inputs_.tokens, setting_.half ? DType::f16 : DType::bf16, {n, hidden}};
    if (calls.given >= 0) {
      in.handle = handle_at(calls.given);
    } else {
      in.topk_ids = {inputs_.ids, setting_.wide_ids ? DType::i64 : DType::i32, {n, setting_.top_k}};
      if (!setting_.exact) in.topk_weights = {inputs_.weights, DType::f32, {n, setting_.top_k}};
    }
    if (setting_.format == Format::nvfp4) in.input_scale = input_scale_;
    in.row_order = round.order[rank_];
    DispatchOutput out = outputs_.of(in.row_order);
    if (calls.kept >= 0) out.handle = handle_at(calls.kept);
    const CallOptions call{.stream = arena_.stream(), .max_blocks = max_blocks_of(number, 0)};
    if (draw(segment_.seed, number, 5) % 2 == 0) {
      exchange_.dispatch(in, out, call);
    } else {
      exchange_.dispatch_async(in, call);
      exchange_.dispatch_wait(out, call);
    }
    if (in.row_order == RowOrder::in_place)  // in a graph, too: a replay may use another copy of the slots
      gather_rows(setting_, outputs_.written(in.row_order, 0), slots(), arena_.stream());
  }

  // `handle`: of the round's dispatch; -1: it is the newest one.
  void combine(const Round& round, int handle) {
    const std::int64_t n = round.tokens[rank_];
    const unsigned number = called_as(round.number);
    CombineInput in;
    in.rows = {scratch_.results, DType::bf16, {outputs_.rows(round.order[rank_]), setting_.hidden}};
    if (setting_.exact) in.topk_weights = {inputs_.weights, DType::f32, {n, setting_.top_k}};
    if (handle >= 0) in.handle = handle_at(handle);
    CombineOutput out;
    out.tokens = {arena_.at<void>(sums_), sums_are_wide(number) ? DType::f32 : DType::bf16, {n, setting_.hidden}};
    const CallOptions call{.stream = arena_.stream(), .max_blocks = max_blocks_of(number, 1)};
    if (draw(segment_.seed, number, 7) % 2 == 0) return exchange_.combine(in, out, call);
    exchange_.combine_async(in, call);
    exchange_.combine_wait(out, call);
  }

  Segment segment_;
  int rank_;
  Exchange exchange_;
  Setting setting_{};
  Arena arena_;
  RowOrders orders_;
  Outputs outputs_;
  Inputs inputs_{};
  Scratch scratch_{};
  Verdict* verdict_ = nullptr;
  float* input_scale_ = nullptr;
  std::optional<test::CapturedGraph> dispatch_graph_, combine_graph_;
  std::optional<Round> kept_[kHandles];  // the rounds whose routing the handles have
  std::size_t handles_[kHandles] = {};
  std::size_t sums_ = 0;
};

}  // namespace

const char* name_of(Format format) {
  constexpr const char* kNames[] = {"bf16",  "f16",   "f32",  "fp8_block128", "fp8_block128_ue8m0",
                                    "mxfp8", "mxfp4", "nvfp4"};
  return kNames[static_cast<int>(format)];
}

Verdict run_segment(World& world, int device, const Segment& segment) {
  check(cudaSetDevice(device), "cudaSetDevice");
  RankSegment rank(world, segment);
  world.barrier();  // no rank may wait for the device while a stream of it is being captured
  if (segment.replayed) rank.capture();
  world.barrier();  // allocating on one device may wait for kernels of another, and those for this rank
  for (unsigned i = 0; i < segment.rounds; ++i) rank.run(segment.first_round + i);
  const Verdict verdict = rank.finish();
  world.barrier();  // so may freeing, where ranks share a device
  return verdict;
}

}  // namespace ferry::stress
