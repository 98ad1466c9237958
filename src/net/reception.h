// Reception: hears the processes of a job that connect, among strangers that connect, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/socket/socket.h"

namespace ferry::net {

constexpr std::uint64_t kJoinMagic = 0x3152454652594a4eULL;
constexpr std::uint32_t kJoinVersion = 3;
constexpr std::size_t kNameBytes = 64;

// The first message of a process that connects. Its size, and where magic and version lie, are of all versions: so
// processes of two versions refuse each other.
struct Hello {
  std::uint64_t magic = kJoinMagic;
  std::uint32_t version = kJoinVersion;
  std::uint32_t milliseconds_left = 0;  // until the sender's deadline
  std::int16_t rank = 0;
  std::int16_t size = 0;
  std::uint32_t port = 0;   // where this process listens for the ranks above it
  std::uint64_t token = 0;  // of the job, once it is known; 0 towards rank 0
  char name[kNameBytes] = {};
};
static_assert(sizeof(Hello) == 96);

// Accepts connections until every expected rank has sent its Hello. Connections that send anything else are ignored. It
// polls all connections at once, so a silent stranger delays nobody.
class Reception {
 public:
  struct Caller {
    Descriptor socket;
    Hello hello;
  };
  // Takes a complete Hello, and returns whether all ranks have come.
  using Receive = std::function<bool(Caller)>;

  // `met`: connections to ranks that have come; empty for others. If such a rank ends, no rank waits for the rest.
  // `deadline` may become an earlier one in Receive.
  Reception(const Listener& listener, const std::vector<Descriptor>& met, const Deadline& deadline)
      : listener_(listener), met_(met), deadline_(deadline) {}

  // Whether all ranks have come. Throws Error(system) where this process can open no more connections.
  bool run(const Receive& receive);

  // The rank that came and ended; -1: none.
  int ended() const { return ended_; }

 private:
  enum class State { more, whole, stranger };
  struct Waiting {
    Descriptor socket;
    Hello hello;
    std::size_t got = 0;
  };

  void wait();
  bool hear_all(const Receive& receive);
  static State hear(Waiting& from);

  const Listener& listener_;
  const std::vector<Descriptor>& met_;
  const Deadline& deadline_;
  std::vector<Waiting> waiting_;
  int ended_ = -1;
};

}  // namespace ferry::net
