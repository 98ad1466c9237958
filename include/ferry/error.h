// Errors: what Ferry throws. Every message carries the values, the limit and the rank, and says what to do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace ferry {

enum class ErrorKind {
  // Refused before anything moved: the exchange is as it was, and the call may be repeated. What only a kernel, a
  // comparison of ranks or the counts of a dispatch say comes later (ferry/exchange.h).
  invalid_argument,
  out_of_order,  // a call that the round does not allow now, such as a second dispatch_async without a wait
  peer_missing,  // a wait passed its deadline, here or on another rank; the exchange refuses every later call
  aborted,       // a rank said that it takes no further part; waits for it end at once
  unsupported,   // this build or this machine cannot do it
  io,            // a file could not be read or written
  system,        // the operating system or a driver refused (memory, threads, devices)
};

// "invalid argument", "peer missing", ...; never null.
const char* to_string(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

enum class Operation : std::uint32_t { none, dispatch, combine, set_up };
const char* to_string(Operation operation);

// What a wait was for: which signal of docs/protocol.md it watched.
enum class Phase : std::uint32_t {
  none,
  consumed,  // no wait has it any more
  routing,
  message,
  result,
  dispatching,  // another rank had not begun the same dispatch
  summed,       // another rank had not summed the results of the combine before
  handle,       // another rank gave a handle of another dispatch; no rank is missing
  weights,      // another rank had not begun the same combine, with which its late weights come
};
const char* to_string(Phase phase);

// Why the missing rank does not come, as far as is known.
enum class Absence : std::uint32_t {
  late,     // it said nothing: a deadline passed
  aborted,  // it aborted its world (World::abort)
  left,     // it destroyed its exchange while others waited for more of it
  ended,    // its process ended: in worlds of processes that see it at once (make_process_world)
};

// What a wait saw when it gave up. `token` is -1 where the signal is not about one token.
struct WaitRecord {
  Operation operation = Operation::none;
  Phase phase = Phase::none;
  std::int32_t my_rank = -1;
  std::int32_t missing_rank = -1;  // the culprit: the rank that did not come
  std::int32_t reported_by = -1;   // the rank whose deadline expired; my_rank where it was this one
  std::int32_t token = -1;
  std::uint64_t epoch_seen = 0;
  std::uint64_t epoch_wanted = 0;
  std::int32_t block = -1;  // of the GPU kernel that waited; -1 on CPU ranks
  Absence absence = Absence::late;
};

// A rank did not come within the deadline, or said that it will not (Aborted). Thrown on every rank that is still
// there.
class PeerMissing : public Error {
 public:
  PeerMissing(const WaitRecord& record, const std::string& message)
      : Error(ErrorKind::peer_missing, message), record_(record) {}
  const WaitRecord& record() const { return record_; }

 protected:
  PeerMissing(ErrorKind kind, const WaitRecord& record, const std::string& message)
      : Error(kind, message), record_(record) {}

 private:
  WaitRecord record_;
};

// A rank said that it takes no further part: record().missing_rank, which may be this one. kind() is `aborted`.
class Aborted : public PeerMissing {
 public:
  Aborted(const WaitRecord& record, std::string reason, const std::string& message)
      : PeerMissing(ErrorKind::aborted, record, message), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }  // in that rank's words

 private:
  std::string reason_;
};

}  // namespace ferry
