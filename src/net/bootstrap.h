// Bootstrap: TCP connections between all processes of a job. Worlds of processes need it for set-up: all_gather with a
// deadline that names the missing rank. A rank whose process ended is missing at once. Nothing runs between two calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ferry/world.h"
#include "net/joining.h"

namespace ferry::net {

class Bootstrap {
 public:
  // Collective; see join().
  Bootstrap(const Job& job, std::chrono::milliseconds deadline);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.size()); }
  std::uint64_t token() const { return token_; }  // the same on all ranks of this job, and hard to guess
  std::uint64_t call() const { return call_; }    // calls so far: the same on all ranks

  // World::all_gather. A rank that gives up tells the others which rank it missed, so that all name the same one.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline);

 private:
  enum class Kind : std::uint32_t { part, failed };
  struct Header {
    std::uint32_t magic;
    Kind kind;
    std::uint64_t call;
    std::uint64_t bytes;
  };
  // One connection: what is still to be sent, what has come but is no whole frame yet, and the parts of calls that this
  // rank has not reached.
  struct Link {
    Descriptor socket;
    std::vector<std::byte> out;
    std::vector<std::byte> in;
    std::map<std::uint64_t, std::vector<std::byte>> parts;
  };
  struct Failure {
    int missing;
    int reported_by;
  };

  Link& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  void queue(Link& link, Kind kind, std::span<const std::byte> bytes);
  void flush(Link& link);
  void receive(int rank);
  void take_frames(int rank);
  void wait(const RankMask& mask, const Deadline& deadline);
  int first_missing(const RankMask& mask, bool only_ended) const;
  bool is_done(const RankMask& mask) const;
  [[noreturn]] void fail(const RankMask& mask, Failure failure, std::chrono::milliseconds deadline);

  int rank_;
  std::uint64_t token_;
  std::vector<Link> links_;
  std::uint64_t call_ = 0;
  std::map<std::uint64_t, Failure> failures_;  // by call, as other ranks reported
};

}  // namespace ferry::net
