// Bootstrap: TCP connections between all processes of a job. Worlds of processes need it for set-up: all_gather,
// and bytes from rank to rank, with a deadline that names the missing rank. A rank whose process ended is missing at
// once. Nothing runs between two calls.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/abort_notice.h"
#include "base/deadline.h"
#include "ferry/world.h"
#include "net/joining.h"

namespace ferry::net {

class Bootstrap {
 public:
  // Collective; see join(). Until set_up_is_done() a request to stop the job aborts it: this rank is gone then.
  Bootstrap(const Job& job, std::chrono::milliseconds deadline);
  // Throws Error(aborted) where the request has come.
  void set_up_is_done();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.size()); }
  std::uint64_t token() const { return token_; }  // the same on all ranks of this job, and hard to guess
  std::uint64_t call() const { return call_; }    // calls so far: the same on all ranks

  // World::all_gather. A rank that gives up tells the others which rank it missed, so that all name the same one.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline);

  // ProcessWorld::send and receive. What a rank receives while it is in another call waits for its receive.
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline);
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline);

  // World::tell_aborted and World::abort_reason. From any thread, also while another thread is in a call.
  void tell_aborted(const AbortNotice& notice);
  std::string abort_reason(int rank);
  // Throws PeerMissing where that rank has ended or aborted, or this one has. Does not wait.
  void require_there(int rank);
  // Whether that rank's process has ended, or left its world. From any thread, and it waits for nothing: false while
  // another thread is in a call.
  bool has_ended(int rank);
  // I10: in an exchange this rank gave up on `missing`, and `peer` shares the exchange. From any thread.
  void tell_missed(int peer, int missing);
  // I10: the rank for which `missing` does not come, as far as ranks that the mask leaves in have said so here. From
  // any thread.
  int find_culprit(int missing, const RankMask& mask);

 private:
  // contribution and failed are of an all_gather; bytes, taken and gave_up of a send: its bytes, that all are taken,
  // and that one end gave up. aborted: the rank missed, and the reason. missed: the rank missed in an exchange, or in
  // an all_gather as another rank told.
  enum class Kind : std::uint32_t { contribution, failed, bytes, taken, gave_up, aborted, missed };
  struct Header {
    std::uint32_t magic;
    Kind kind;
    std::uint64_t call;
    std::uint64_t bytes;
  };
  // Whom a rank gave up on, after so many calls.
  struct Loss {
    std::uint64_t call = 0;
    int missing = -1;
  };
  // One connection: what is still to be sent, what has come but is no whole frame yet, and the contributions to calls
  // that this rank has not reached.
  struct Link {
    Descriptor socket;
    std::vector<std::byte> out;
    std::vector<std::byte> in;
    std::map<std::uint64_t, std::vector<std::byte>> contributions;
    std::vector<std::byte> bytes;  // sent to this rank and not received yet
    int taken = 0;                 // sends of this rank that the other end has taken
    bool gave_up = false;          // one end did: no send succeeds any more
    Loss loss;                     // the last that the other end told
  };
  struct Failure {
    int missing;
    int reported_by;
    bool is_relayed;  // as another rank told all of this call
  };
  // A call that is under way on this thread. Only one thread at a time has one, and uses the links. What this rank
  // says meanwhile on another thread is sent at its end.
  class Calling {
   public:
    explicit Calling(Bootstrap& bootstrap);
    Calling(Bootstrap& bootstrap, std::unique_lock<std::mutex>& lock);  // `lock` is of guard_; no call is under way
    ~Calling();
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;

   private:
    Bootstrap& bootstrap_;
  };

  Link& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  void queue(Link& link, Kind kind, std::span<const std::byte> bytes);
  void flush(Link& link);
  void read(int rank);
  void take_frames(int rank);
  void take_frame(int rank, const Header& header, std::span<const std::byte> body);
  void begin_call(std::span<const std::byte> mine, const RankMask& mask);
  void wait(const RankMask& mask, const Deadline& deadline);
  int first_missing(const RankMask& mask, bool only_ended) const;
  bool is_done(const RankMask& mask) const;
  void require_other_rank(const char* call, int other) const;
  template <class IsDone>
  void wait_for(int peer, const IsDone& is_done, std::chrono::milliseconds deadline);
  [[noreturn]] void give_up(int peer, std::chrono::milliseconds deadline);
  void send_own_abort();
  void send_missed();
  void take_loss(int rank, const Header& header, std::span<const std::byte> body);
  int follow_losses(int missing, std::uint64_t since, const RankMask& mask, const Deadline& moment);
  Failure failure_of(int missing, const RankMask& mask, std::chrono::milliseconds deadline);
  const AbortNotice* find_abort(int rank) const;
  void throw_own_abort(const RankMask& mask);
  void throw_if_aborted(const RankMask& mask);
  [[noreturn]] void fail(const RankMask& mask, Failure failure, std::chrono::milliseconds deadline);
  void tell_failed(const RankMask& mask, const Failure& failure);
  [[noreturn]] void fail_joining(int missing, const std::exception_ptr& error, std::chrono::milliseconds deadline);

  int rank_;
  std::uint64_t token_;
  std::vector<Link> links_;
  std::uint64_t call_ = 0;
  std::map<std::uint64_t, Failure> failures_;  // by call, as other ranks reported
  struct Abort {
    std::uint64_t call;  // the last that its rank came to
    AbortNotice notice;
  };
  Descriptor wakes_;  // ends a poll when this rank aborts on another thread

  std::mutex guard_;                 // of what follows
  std::condition_variable changed_;  // a call has ended, or a rank's abort has come
  std::vector<Abort> aborts_;        // of other ranks, in the order in which they came; only a call adds to them
  bool is_calling_ = false;
  std::optional<AbortNotice> own_abort_;
  bool has_told_ = false;
  std::vector<std::pair<int, int>> untold_;  // peer and missing rank, of tell_missed

  // The last member: it ends first.
  std::optional<std::stop_callback<std::function<void()>>> aborts_on_stop_;
};

}  // namespace ferry::net
