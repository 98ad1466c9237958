// HeapMap: the offsets in a rank's symmetric memory, the same on all ranks. The memory is a table of regions. Offsets
// are prefix sums of their sizes, and every accessor is an index into one region.
//
// Three counters number what is written (I13): routings, messages and results. The parity of a buffer, and the words
// that speak of it, follow the counter of its own kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/layout/token_list.h"
#include "ferry/formats/portable.h"
#include "ferry/shape.h"

namespace ferry {

// What determines the size of the symmetric memory.
struct HeapShape {
  Shape shape;                    // as the protocol sees it: one rank in skip_a2a mode
  int max_local = 0;              // most experts of a rank
  std::size_t message = 0;        // bytes of a message
  bool exact = false;             // a result slot for each k, not for each rank
  bool has_remote_ranks = false;  // some ranks are reached by puts only, from send buffers
  bool has_token_lists = false;   // sources say which of their tokens come: rows may be by_source
  bool has_late_weights = false;  // weights may come with a combine of by_rank, or with a replay
  bool returns_weights = false;   // weights go home with results
  std::size_t result = 0;         // bytes of a result, a multiple of 16; 0: as many as a bf16 row
  std::size_t most_message = 0;   // of the largest message of all formats; 0: `message`
  bool may_sum = false;           // with exact: combines may be by_rank, too
  bool has_input_scales = false;  // ranks compare the input scales of their dispatches
  int message_copies = 2;         // of the message slots: 2 or 4. A mask finds the copy of a message's number
};

class HeapMap {
 public:
  enum Region {
    kMessages,         // [copy, by the number of messages][source][token] message
    kTables,           // [parity of routings][source][token][k] RoutingEntry
    kCounts,           // [parity][source][local expert] u32; on GPUs with a tag (I19)
    kSentCounts,       // [parity][expert] u32: what this rank puts into the others' counts
    kHeaders,          // [parity][source] RoutingHeader
    kArrived,          // [copy, as kMessages][source][token] word: the message is there
    kRouted,           // [source][part] word: that part of the table is there; on CPUs header and counts, too
    kDispatching,      // [peer] call word (call_word.h): peer has begun this replay, and ended all before it (I1)
    kSummed,           // [peer] word: peer has read all results of the combines before this one (I8)
    kCombining,        // [peer] call word: peer has begun this told combine; only compared, not waited for
    kAborted,          // [peer] abort word (abort_word.h)
    kResults,          // [token][j or k] result; where they are packed (I9): rank by rank
    kResultArrived,    // [token][j or k] word: the result is there; packed as kResults
    kSentMessages,     // send buffers: [parity][token] message
    kSentResults,      // send buffers: [source][token] result, or [source][token][k] when exact, or packed
    kTokenLists,       // for rows by_source: [parity of routings][source] token list (token_list.h)
    kSentTokenLists,   // the same: [parity][peer] list: what this rank puts into the others' lists
    kLateWeights,      // [parity of messages, or 2: of combines][source] header, and f32 [token][k]
    kWeighed,          // [peer] word: the late weights of peer for this combine are there (I24)
    kReturned,         // [token][j or k] weights that come home with the result, packed as it is
    kReturnedArrived,  // the same: word: they are there (I25)
    kSentReturned,     // send buffers: as kSentResults
    kGivenCounts,      // dispatches by counts, for rows by_source: [parity][source][local expert] i32
    kSentGivenCounts,  // the same: [parity][expert]: what this rank puts into the others' given counts
    kInputScales,      // [kScaleCopies, by the number of messages][source] scale word (scale_word.h)
    kRegions
  };
  static constexpr std::size_t kMostTableParts = 32;
  static constexpr Epoch kScaleCopies = 4;  // I26
  static constexpr std::size_t kLateHeaderBytes = 16;
  static constexpr std::size_t kAlignment = 128;  // of every region: two cache lines, and a GPU's line of memory
  // `bytes` rounded up to whole lines.
  FERRY_HD static constexpr std::size_t whole_lines(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  HeapMap() = default;
  explicit constexpr HeapMap(const HeapShape& h) : h_(h), message_slot_(message_slot_bytes(h)) {
    if (h_.result == 0) h_.result = static_cast<std::size_t>(h.shape.hidden) * 2;
    result_slot_ = slot_bytes(h_.result, h.has_remote_ranks);
    const auto ranks = static_cast<std::size_t>(h.shape.ranks);
    const auto tokens = static_cast<std::size_t>(h.shape.max_tokens);
    const auto top_k = static_cast<std::size_t>(h.shape.top_k);
    const auto copies = static_cast<std::size_t>(h.message_copies);
    const std::size_t bytes[kRegions] = {
        copies * ranks * tokens * message_slot_,
        2 * ranks * tokens * top_k * sizeof(RoutingEntry),
        2 * ranks * static_cast<std::size_t>(h.max_local) * sizeof(std::uint32_t),
        2 * static_cast<std::size_t>(h.shape.experts) * sizeof(std::uint32_t),
        2 * ranks * sizeof(RoutingHeader),
        copies * ranks * tokens * sizeof(SignalWord),
        ranks * kMostTableParts * sizeof(SignalWord),
        ranks * sizeof(SignalWord),
        ranks * sizeof(SignalWord),
        ranks * sizeof(SignalWord),
        ranks * sizeof(SignalWord),
        tokens * results_per_token() * result_slot_,
        tokens * results_per_token() * sizeof(SignalWord),
        h.has_remote_ranks ? 2 * tokens * message_slot_ : 0,
        h.has_remote_ranks ? ranks * tokens * (h.exact ? top_k : 1) * result_slot_ : 0,
        h.has_token_lists ? 2 * ranks * token_list_bytes() : 0,
        h.has_token_lists ? 2 * ranks * token_list_bytes() : 0,
        h.has_late_weights ? 3 * ranks * late_weights_bytes() : 0,
        h.has_late_weights ? ranks * sizeof(SignalWord) : 0,
        h.returns_weights ? tokens * results_per_token() * returned_bytes() : 0,
        h.returns_weights ? tokens * results_per_token() * sizeof(SignalWord) : 0,
        h.returns_weights && h.has_remote_ranks ? ranks * tokens * (h.exact ? top_k : 1) * returned_bytes() : 0,
        h.has_token_lists ? 2 * ranks * static_cast<std::size_t>(h.max_local) * sizeof(std::int32_t) : 0,
        h.has_token_lists ? 2 * static_cast<std::size_t>(h.shape.experts) * sizeof(std::int32_t) : 0,
        h.has_input_scales ? kScaleCopies * ranks * sizeof(SignalWord) : 0,
    };
    for (int region = 0; region < kRegions; ++region) begin_[region + 1] = begin_[region] + whole_lines(bytes[region]);
  }

  FERRY_HD constexpr std::size_t total() const { return begin_[kRegions]; }
  FERRY_HD constexpr std::size_t begin(Region region) const { return begin_[region]; }
  FERRY_HD constexpr std::size_t region_bytes(Region region) const { return begin_[region + 1] - begin_[region]; }
  static constexpr const char* region_name(Region region) {
    constexpr const char* kNames[kRegions] = {
        "messages",       "routing tables",   "expert counts",     "sent counts",       "routing headers",
        "arrived words",  "routed words",     "dispatching words", "summed words",      "combining words",
        "abort words",    "result slots",     "result words",      "sent messages",     "sent results",
        "token lists",    "sent token lists", "late weights",      "weighed words",     "returned weights",
        "returned words", "sent weights",     "given counts",      "sent given counts", "input scales"};
    return kNames[region];
  }

  // Some ranks are reached by puts only, from send buffers.
  FERRY_HD constexpr bool has_remote_ranks() const { return h_.has_remote_ranks; }
  FERRY_HD constexpr std::size_t message_bytes() const { return h_.message; }
  // Of the next dispatch; at most HeapShape::most_message. No offset changes, so others may read them meanwhile.
  constexpr void set_message_bytes(std::size_t bytes) { h_.message = bytes; }
  FERRY_HD constexpr std::size_t message_slot_bytes() const { return message_slot_; }
  FERRY_HD constexpr std::size_t result_bytes() const { return h_.result; }
  FERRY_HD constexpr std::size_t result_slot_bytes() const { return result_slot_; }
  FERRY_HD constexpr std::size_t results_per_token() const {
    return static_cast<std::size_t>(h_.exact || h_.shape.top_k < h_.shape.ranks ? h_.shape.top_k : h_.shape.ranks);
  }

  FERRY_HD constexpr bool has_slot_of_each_k() const { return h_.exact; }

  FERRY_HD constexpr bool has_token_lists() const { return h_.has_token_lists; }
  FERRY_HD constexpr std::size_t token_list_bytes() const {
    return token_list_words(h_.shape.max_tokens) * sizeof(std::uint64_t);
  }
  FERRY_HD constexpr std::size_t given_counts(Epoch e, int source) const {
    return begin_[kGivenCounts] +
           offset_of(line(e, source), static_cast<std::size_t>(h_.max_local) * sizeof(std::int32_t));
  }
  FERRY_HD constexpr std::size_t sent_given_counts(Epoch e) const {
    return begin_[kSentGivenCounts] + (e & 1) * static_cast<std::size_t>(h_.shape.experts) * sizeof(std::int32_t);
  }
  FERRY_HD constexpr std::size_t token_list(Epoch e, int source) const {
    return begin_[kTokenLists] + offset_of(line(e, source), token_list_bytes());
  }
  FERRY_HD constexpr std::size_t sent_token_list(Epoch e, int peer) const {
    return begin_[kSentTokenLists] + offset_of(line(e, peer), token_list_bytes());
  }

  FERRY_HD constexpr bool has_input_scales() const { return h_.has_input_scales; }
  FERRY_HD constexpr std::size_t input_scale(Epoch e, int source) const {
    return word(kInputScales, static_cast<int>(e % kScaleCopies) * h_.shape.ranks + source);
  }

  FERRY_HD constexpr bool has_late_weights() const { return h_.has_late_weights; }
  FERRY_HD constexpr std::size_t late_weights_bytes() const {
    const auto entries = static_cast<std::size_t>(h_.shape.max_tokens) * static_cast<std::size_t>(h_.shape.top_k);
    return kLateHeaderBytes + (entries * sizeof(float) + 15) / 16 * 16;
  }
  FERRY_HD constexpr std::size_t late_weights(int copy, int source) const {
    return begin_[kLateWeights] + static_cast<std::size_t>(copy * h_.shape.ranks + source) * late_weights_bytes();
  }
  FERRY_HD constexpr std::size_t weighed(int peer) const { return word(kWeighed, peer); }

  FERRY_HD constexpr bool returns_weights() const { return h_.returns_weights; }
  FERRY_HD constexpr bool has_weights_beside_results() const { return has_late_weights() || returns_weights(); }
  // A word that says which values there are, and the values: one where all results are rows, else top_k.
  FERRY_HD constexpr std::size_t returned_bytes() const {
    const std::size_t values = h_.exact && !h_.may_sum ? 1 : static_cast<std::size_t>(h_.shape.top_k);
    return (sizeof(std::uint32_t) + values * sizeof(float) + 15) / 16 * 16;
  }
  FERRY_HD constexpr std::size_t returned(int token, int index) const {
    return begin_[kReturned] + offset_of(result_slot(token, index), returned_bytes());
  }
  FERRY_HD constexpr std::size_t returned_arrived(int token, int index) const {
    return begin_[kReturnedArrived] + offset_of(result_slot(token, index), sizeof(SignalWord));
  }
  FERRY_HD constexpr std::size_t sent_returned(int source, std::size_t index) const {
    return begin_[kSentReturned] +
           (static_cast<std::size_t>(source) * sent_results_of_rank() + index) * returned_bytes();
  }

  FERRY_HD constexpr std::size_t message(Epoch e, int source, int token) const {
    return begin_[kMessages] + offset_of(message_slot(e, source, token), message_slot_);
  }
  FERRY_HD constexpr std::size_t table(Epoch e, int source) const {
    return begin_[kTables] +
           offset_of(slot(e, source, 0), static_cast<std::size_t>(h_.shape.top_k) * sizeof(RoutingEntry));
  }
  // Which of all slots for messages, of all copies, it is.
  FERRY_HD constexpr std::uint32_t message_slot(Epoch e, int source, int token) const {
    const std::uint32_t copy = static_cast<std::uint32_t>(e) & static_cast<std::uint32_t>(h_.message_copies - 1);
    return (copy * static_cast<std::uint32_t>(h_.shape.ranks) + static_cast<std::uint32_t>(source)) *
               static_cast<std::uint32_t>(h_.shape.max_tokens) +
           static_cast<std::uint32_t>(token);
  }
  FERRY_HD constexpr int message_copies() const { return h_.message_copies; }
  FERRY_HD constexpr std::size_t counts(Epoch e, int source) const {
    return begin_[kCounts] + offset_of(line(e, source), static_cast<std::size_t>(h_.max_local) * sizeof(std::uint32_t));
  }
  FERRY_HD constexpr std::size_t sent_counts(Epoch e) const {
    return begin_[kSentCounts] + (e & 1) * static_cast<std::size_t>(h_.shape.experts) * sizeof(std::uint32_t);
  }
  FERRY_HD constexpr std::size_t header(Epoch e, int source) const {
    return begin_[kHeaders] + offset_of(line(e, source), sizeof(RoutingHeader));
  }
  FERRY_HD constexpr std::size_t arrived(Epoch e, int source, int token) const {
    return begin_[kArrived] + offset_of(message_slot(e, source, token), sizeof(SignalWord));
  }
  FERRY_HD constexpr std::size_t routed(int source, int part = 0) const {
    return word(kRouted, source * static_cast<int>(kMostTableParts) + part);
  }
  FERRY_HD constexpr std::size_t dispatching(int peer) const { return word(kDispatching, peer); }
  FERRY_HD constexpr std::size_t summed(int peer) const { return word(kSummed, peer); }
  FERRY_HD constexpr std::size_t combining(int peer) const { return word(kCombining, peer); }
  FERRY_HD constexpr std::size_t aborted(int peer) const { return word(kAborted, peer); }
  FERRY_HD constexpr std::size_t result(int token, int index) const {
    return begin_[kResults] + offset_of(result_slot(token, index), result_slot_);
  }
  FERRY_HD constexpr std::size_t result_arrived(int token, int index) const {
    return begin_[kResultArrived] + offset_of(result_slot(token, index), sizeof(SignalWord));
  }
  // The index, relative to `token`, of a slot that may lie where another token's would be: packed results (I9).
  FERRY_HD constexpr int index_of_slot(std::uint32_t slot, int token) const {
    return static_cast<int>(slot) - token * static_cast<int>(results_per_token());
  }
  FERRY_HD constexpr std::size_t sent_message(Epoch e, int token) const {
    return begin_[kSentMessages] + offset_of(slot_of_one(e, token), message_slot_);
  }
  // `index`: the token, or token * K + k when exact; for packed results, how many were sent to that rank before.
  FERRY_HD constexpr std::size_t sent_result(int source, std::size_t index) const {
    return begin_[kSentResults] + (static_cast<std::size_t>(source) * sent_results_of_rank() + index) * result_slot_;
  }

  // I15: the send buffer of a message or result that goes to slot `offset` of `peer`, if results are not packed. The
  // network reads it late. Messages are double-buffered and each result has a buffer of its own, so the bytes stay
  // until the receiver has shown that it has them.
  FERRY_HD constexpr std::size_t send_buffer_of(std::size_t offset, int peer) const {
    if (offset >= begin_[kResults]) {
      const std::size_t slot = (offset - begin_[kResults]) / result_slot_;
      return sent_result(peer, h_.exact ? slot : slot / results_per_token());
    }
    const std::size_t slot = (offset - begin_[kMessages]) / message_slot_;
    const auto tokens = static_cast<std::size_t>(h_.shape.max_tokens);
    return sent_message(slot / tokens / static_cast<std::size_t>(h_.shape.ranks), static_cast<int>(slot % tokens));
  }

 private:
  // The most results that a rank sends to one source.
  FERRY_HD constexpr std::size_t sent_results_of_rank() const {
    return static_cast<std::size_t>(h_.shape.max_tokens) * static_cast<std::size_t>(h_.exact ? h_.shape.top_k : 1);
  }
  // Slots begin at lines of memory, since links carry whole lines faster. Exceptions: the slots would take more than a
  // sixteenth more memory; or some ranks are remote, since consecutive messages or results may then travel as one put.
  static constexpr std::size_t slot_bytes(std::size_t most, bool has_remote_ranks) {
    const std::size_t lines = whole_lines(most);
    return has_remote_ranks || 16 * (lines - most) > most ? most : lines;
  }
  static constexpr std::size_t message_slot_bytes(const HeapShape& h) {
    return slot_bytes(h.most_message == 0 ? h.message : h.most_message, h.has_remote_ranks);
  }
  // I14: the index of a word or a slot determines its only writer. Indices and the bytes of a piece fit 32 bits
  // (require_addressable), so a GPU multiplies them in one instruction.
  FERRY_HD constexpr std::uint32_t line(Epoch e, int source) const {
    return (static_cast<std::uint32_t>(e) & 1u) * static_cast<std::uint32_t>(h_.shape.ranks) +
           static_cast<std::uint32_t>(source);
  }
  FERRY_HD constexpr std::uint32_t slot(Epoch e, int source, int token) const {
    return line(e, source) * static_cast<std::uint32_t>(h_.shape.max_tokens) + static_cast<std::uint32_t>(token);
  }
  FERRY_HD constexpr std::uint32_t slot_of_one(Epoch e, int token) const {
    return (static_cast<std::uint32_t>(e) & 1u) * static_cast<std::uint32_t>(h_.shape.max_tokens) +
           static_cast<std::uint32_t>(token);
  }
  FERRY_HD constexpr std::uint32_t result_slot(int token, int index) const {
    return static_cast<std::uint32_t>(token) * static_cast<std::uint32_t>(results_per_token()) +
           static_cast<std::uint32_t>(index);
  }
  FERRY_HD static constexpr std::size_t offset_of(std::uint32_t index, std::size_t bytes) {
    return static_cast<std::uint64_t>(index) * static_cast<std::uint32_t>(bytes);
  }
  FERRY_HD constexpr std::size_t word(Region region, int index) const {
    return begin_[region] + static_cast<std::size_t>(index) * sizeof(SignalWord);
  }

  HeapShape h_{};
  std::size_t message_slot_ = 0;
  std::size_t result_slot_ = 0;
  std::size_t begin_[kRegions + 1] = {};
};

}  // namespace ferry
