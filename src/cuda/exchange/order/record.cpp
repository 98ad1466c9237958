#include "cuda/exchange/order/record.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/deadline.h"
#include "cuda/device/refuse.h"
#include "cuda/exchange/order/abort_waits.h"
#include "exchange/calls/refuse_overflow.h"
#include "exchange/exchange_steps.h"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/detail/layout/other_handle.h"

namespace ferry::cuda {
namespace {

const char* name_of(HandleField field) {
  const char* name = "a field";
  if (field == HandleField::first_word) name = "its first word";
  if (field == HandleField::num_tokens) name = "number of tokens";
  if (field == HandleField::alignment) name = "alignment";
  if (field == HandleField::mask) name = "whether the mask of the call has all ranks of its mask";
  for_each_shape_field([&](HandleField each, const char* of_each, std::int32_t HandleHeader::*) {
    if (each == field) name = of_each;
  });
  return name;
}

std::string said(HandleField field, std::int64_t value) {
  const bool is_order = field == HandleField::order && value >= 0 && value < kRowOrders;
  return is_order ? to_string(static_cast<RowOrder>(value)) : std::to_string(value);
}

// A rank that refused a handle, or gave another one than a third rank, says so in its word.
bool tells_of_handle(WaitRecord& failure, AbortWaits& waits) {
  const int reporter = failure.reported_by;
  const Epoch word = reporter == failure.my_rank ? Epoch{0} : waits.word_now(reporter);
  if ((word & kOtherRouting) == 0 || (word & kLeft) != 0) return false;
  failure.phase = Phase::handle;
  failure.missing_rank = rank_waited_for(word);
  failure.epoch_wanted = word >> 16;
  if (failure.missing_rank == reporter) return true;
  failure.epoch_seen = kSeenAnotherHandle;
  failure.operation = OtherHandle::of(failure.epoch_wanted, failure.missing_rank).operation;
  return true;
}

}  // namespace

Record::Record()
    : memory_(std::make_shared<PinnedMemory>(sizeof(HostRecord))), record_(static_cast<HostRecord*>(memory_->data())) {}

bool Record::has_failed() const { return load_acquire(record_->failed) != 0; }

// I10
WaitRecord Record::failure(const PeerLinks& links, const RoundMasks& masks) const {
  WaitRecord failure = record_->wait;
  if (failure.phase == Phase::handle) return failure;
  const auto deadline = std::chrono::milliseconds(links.deadline_ns / 1'000'000);
  const auto* words = reinterpret_cast<const SignalWord*>(links.own + links.abort_words);
  AbortWaits waits(words, links.size, moment_for_words(deadline));
  if (tells_of_handle(failure, waits)) return failure;
  const Epoch own = waits.word_now(links.rank);  // what this rank wrote at the others
  const int waited_for = own == 0 ? failure.missing_rank : rank_waited_for(own);
  const auto is_masked = [&](int rank) { return rank >= 0 && rank < links.size && masks.is_masked_in_newest(rank); };
  const auto seen = [&](Epoch word, int rank) {
    return is_masked(rank_waited_for(word)) ? naming_itself(word, rank) : word;
  };
  if (is_masked(failure.missing_rank)) failure.missing_rank = failure.reported_by;
  failure.missing_rank = follow_abort_words(failure.missing_rank, links.rank, waited_for, links.size,
                                            [&](int suspect) { return seen(waits.word_of(suspect), suspect); });
  failure.absence = absence_of(seen(waits.word_now(failure.missing_rank), failure.missing_rank), failure.missing_rank);
  return failure;
}

void Record::require_no_bad_handle(int rank) {
  if (record_->handle_field == HandleField::none) return;
  if (record_->handle_field == HandleField::newest_dispatch) return;  // failure() says it on all ranks alike
  if (record_->handle_field == HandleField::row_room)
    refuse(ErrorKind::invalid_argument, rank,
           "handle: the outputs of the dispatch that left the handle of an earlier call had room for {} rows, and when "
           "that call was made or captured no dispatch of this world whose rows may overflow had left a handle at this "
           "rank. The exchange is over on all ranks. Make or capture the call behind such a dispatch",
           record_->handle_value);
  if (record_->handle_field == HandleField::by_counts)
    refuse(ErrorKind::invalid_argument, rank,
           "handle: the handle of an earlier dispatch is of a dispatch with in_rank, and when that call was made or "
           "captured no such dispatch of this world had left a handle at this rank. The exchange is over on all ranks. "
           "Make or capture the call behind such a dispatch");
  if (record_->handle_field == HandleField::aligned_rows)
    refuse(ErrorKind::invalid_argument, rank,
           "handle: the rows of the handle of an earlier dispatch, aligned as in its own dispatch, are {}, and the "
           "outputs had room for {}. The exchange is over on all ranks. Give outputs for the worst case of the format "
           "of the handle (Exchange::layout), or ask what comes (wait_for_counts)",
           record_->handle_value, record_->handle_limit);
  if (record_->handle_field == HandleField::alignment)
    refuse(ErrorKind::invalid_argument, rank,
           "handle: that of an earlier dispatch is of a dispatch whose expert_alignment is {}; that of the format, {}, "
           "must divide it. The exchange is over on all ranks",
           record_->handle_value, record_->handle_limit);
  if (const std::uint64_t wanted = bytes_wanted_by(static_cast<std::uint64_t>(record_->handle_value));
      record_->handle_field == HandleField::first_word && wanted != 0)
    refuse(ErrorKind::invalid_argument, rank,
           "handle: that of an earlier call had too few bytes: it takes {} (RowLayout::short_handle_bytes, "
           "handle_bytes), or its dispatch had too few and left none. The exchange is over on all ranks. Give a handle "
           "that a dispatch of this rank left, with all of its bytes",
           wanted);
  if (record_->handle_field == HandleField::exact_by_source)
    refuse(ErrorKind::invalid_argument, rank,
           "reduction: an earlier combine was exact, and its handle is of rows by_source, which are sums over the "
           "experts of a rank. The exchange is over on all ranks. Give rows by_source to a combine by_rank");
  if (record_->handle_field == HandleField::weights || record_->handle_field == HandleField::weights_by_source)
    refuse(ErrorKind::invalid_argument, rank,
           "topk_weights: an earlier combine gave weights, and {}. The exchange is over on all ranks. {}",
           record_->handle_field == HandleField::weights
               ? "the dispatch of its handle had been given some"
               : "its handle is of rows by_source, which are sums of the caller's and nobody multiplies",
           record_->handle_field == HandleField::weights ? "Give them once" : "Leave them out");
  refuse(ErrorKind::invalid_argument, rank,
         "handle: of the handle of an earlier call, {} is {}; it must be {}. The exchange is over on all ranks. Give a "
         "handle that a dispatch of this rank left, whole and unchanged{}",
         name_of(record_->handle_field), said(record_->handle_field, record_->handle_value),
         said(record_->handle_field, record_->handle_limit),
         record_->handle_field == HandleField::order ? ", and its order of rows as row_order" : "");
}

Epoch Record::refused() const { return load_acquire(record_->refused); }
void Record::forget_refused() { store_release(record_->refused, Epoch{0}); }

void Record::require_no_bad_ids(int rank, int experts) {
  if (load_acquire(record_->has_bad_id) == 0) return;
  store_release(record_->has_bad_id, 0u);
  const std::uint32_t others = record_->num_bad - 1;
  refuse(ErrorKind::invalid_argument, rank,
         "topk_ids[{}, {}] of an earlier dispatch is {}; it must be -1 (no expert) or 0 to {}, and distinct in a "
         "token. It counted as -1{}",
         record_->bad_token, record_->bad_k, record_->bad_id, experts - 1,
         others == 0 ? ""
                     : fmt::format(", and so did {} other bad id{} of that dispatch", others, others == 1 ? "" : "s"));
}

void Record::require_good_input_scale(int rank) {
  if (load_acquire(record_->has_bad_scale) == 0) return;
  store_release(record_->has_bad_scale, 0u);
  refuse(
      ErrorKind::invalid_argument, rank,
      "input_scale of an earlier dispatch was {}; it must be finite and greater than 0. What its tokens were encoded "
      "to is wrong",
      record_->bad_scale);
}

// Ranks find a scale that differs by themselves, and one of them in a later call than another.
void Record::require_same_input_scale(int rank) {
  if (load_acquire(record_->has_other_scale) == 0) return;
  const OtherScale other = record_->other_scale;
  store_release(record_->has_other_scale, 0u);
  tell_other_scale(rank, other);
}

void Record::tell_other_scale(int rank, const OtherScale& other) {
  const bool is_told = scales_told_ - other.dispatch < HeapMap::kScaleCopies;  // of 32 bits: numbers begin again
  if (!other.was_given() || is_told) return;
  scales_told_ = other.dispatch;
  refuse(
      ErrorKind::invalid_argument, rank,
      "input_scale of an earlier dispatch was {} here and {} on rank {}; it must be the same on all ranks. What came "
      "from ranks with another scale means something else",
      other.mine, other.theirs, other.rank);
}

void Record::require_good_counts(int rank) {
  const BadCounts bad = BadCounts::of(load_acquire(record_->bad_counts));
  if (bad.kind == BadCounts::none) return;
  store_release(record_->bad_counts, std::uint64_t{0});
  constexpr auto kKind = ErrorKind::invalid_argument;
  if (bad.kind == BadCounts::flag)
    refuse(kKind, rank, "in_rank[{}, {}] of an earlier dispatch is {}; it must be 0 or 1. It counted as 0", bad.at,
           bad.value >> 8, bad.value & 255u);
  if (bad.kind == BadCounts::many_ranks)
    refuse(kKind, rank,
           "in_rank[{}] of an earlier dispatch names more than {} ranks; a token has as many results at most: "
           "min(ranks, top_k). It went to the first {}",
           bad.at, bad.value, bad.value);
  if (bad.kind == BadCounts::negative)
    refuse(kKind, rank, "expert_counts[{}] of an earlier dispatch is {}; it must be 0 or more. It counted as 0", bad.at,
           static_cast<std::int32_t>(bad.value));
  if (bad.kind == BadCounts::replayed)
    refuse(kKind, rank,
           "counts, or an output that tells of ids, was given to an earlier dispatch with a handle. The handle is of a "
           "dispatch with in_rank, and keeps neither: what was written there means nothing. Leave it out");
  throw DispatchRefused(rank,
                        fmt::format("in_rank was given to an earlier dispatch, and topk_ids on rank {}; all ranks "
                                    "of a dispatch give the same. Its counts mean nothing",
                                    bad.at));
}

void Record::require_enough_rows(int rank, std::int64_t min_row_capacity) {
  const std::uint32_t few = load_acquire(record_->has_few_rows);
  if (few == 0) return;
  store_release(record_->has_few_rows, 0u);
  refuse(ErrorKind::invalid_argument, rank,
         "{} of an earlier combine had {} rows; its dispatch laid out {} (row_offsets[groups]). {}. {} rows are enough "
         "for any dispatch",
         few == kFewRowWeights ? "row_topk_weights" : "rows", record_->rows_given, record_->rows_laid_out,
         few == kFewRowWeights ? "The others took none home" : "Its sums are wrong", min_row_capacity);
}

void Record::require_room_for_handle(int rank) {
  const std::uint64_t wanted = load_acquire(record_->handle_bytes_wanted);
  if (wanted == 0) return;
  store_release(record_->handle_bytes_wanted, std::uint64_t{0});
  refuse(ErrorKind::invalid_argument, rank,
         "handle of an earlier dispatch was u8 [{}], and a short handle of it takes {} bytes "
         "(RowLayout::short_handle_bytes). The dispatch is done, and has left none: give combine the handle that the "
         "dispatch was given, or none",
         record_->handle_bytes_given, wanted);
}

void Record::tell_overflow(int rank) {
  const std::uint32_t overflows = load_acquire(record_->overflows);
  const std::uint32_t untold = overflows - std::exchange(overflows_told_, overflows);
  const OverflowNote& newest = record_->overflow;
  if (untold != 0) refuse_overflow(rank, {untold, newest.rows, newest.is_padded, newest.room});
}

}  // namespace ferry::cuda
