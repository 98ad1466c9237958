// HandleSequence: calls with handles in an order that a seed draws, the same on all ranks, on one or two exchanges.
// Dispatches leave handles, and dispatches and combines are given them. Some combines are given up, some dispatches
// refused. Each rank compares every byte with the oracle.
#pragma once

#include <span>
#include <vector>

#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {

// Bytes of the handle that the dispatch of `scenario` leaves at this rank: with ExchangeOptions::short_handles those of
// a short one, and not one more than it takes.
std::int64_t handle_bytes_of(const Exchange& exchange, const Scenario& scenario);

// One rank's memory for a handle.
class HandleMemory {
 public:
  explicit HandleMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes), kPoison) {}
  explicit HandleMemory(const Exchange& exchange) : HandleMemory(exchange.layout().handle_bytes) {}
  HandleMemory(const Exchange& exchange, const Scenario& scenario)
      : HandleMemory(handle_bytes_of(exchange, scenario)) {}
  Tensor tensor() { return {bytes_.data(), DType::u8, {static_cast<std::int64_t>(bytes_.size())}}; }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Ranks of GPUs hear of what was wrong with a call behind it: check() is called until it throws, for half a minute.
void check_until_told(Exchange& exchange);

// What a rank gives to a dispatch and to a combine of `round` that are given this handle.
DispatchInput input_with(const RankRound& round, HandleMemory& handle);
CombineInput combine_input_with(const RankRound& round, HandleMemory& handle);

struct HandleMove {
  enum class Kind {
    round,     // a dispatch and its combine, without a handle
    keep,      // a dispatch that leaves a handle
    replay,    // a dispatch with a handle
    combine,   // a combine with a handle
    overlap,   // a combine with a handle, and a dispatch that leaves one or has one, in halves that interleave
    given_up,  // a dispatch, the first half of its combine, and a dispatch that leaves a handle
    refused,   // a dispatch of which a rank has too many tokens, between the halves of a combine with a handle or not
  };
  Kind kind = Kind::round;
  std::size_t exchange = 0;
  Scenario scenario;       // of the dispatch
  Scenario returned;       // overlap, refused: of the combine. given_up: of the first dispatch
  std::size_t handle = 0;  // of the dispatch: left or given
  std::size_t given = 0;   // overlap, refused: given to the combine
  bool replays = false;    // overlap: the dispatch is given its handle
  bool combines = false;   // the dispatch is combined at once, without or with its handle. refused: there is a combine
  int odd = 0;             // refused: the rank with too many tokens
  bool copies = false;     // the handle moves to other memory after this
  bool dispatch_begins = false;
  bool dispatch_ends = false;  // overlap: before the combine
  Form form = Form::split;
};

struct HandleSequence {
  std::vector<ScenarioSettings> exchanges;  // one for each, or for each format of one; they differ in format and hidden
  std::vector<HandleMove> moves;
};

inline constexpr std::size_t kHandles = 3;  // alive at once

HandleSequence make_handle_sequence(std::vector<ScenarioSettings> exchanges, std::uint64_t seed, int moves);

// One rank's part, all of it checked. One exchange stands for all where it has their formats.
void run_handle_sequence(std::span<Exchange> exchanges, const HandleSequence& sequence);

}  // namespace ferry::conformance
