// Bytes between the processes of a job, over TCP: a connection from each to each.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "net/joining.h"

namespace ferry::app {

class ByteLinks {
 public:
  // Collective over the job; see net::join.
  ByteLinks(const net::Job& job, std::chrono::milliseconds deadline);

  // As ProcessWorld's: `send` returns when the receiver has taken all. Each piece has the deadline for itself.
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline);
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline);

 private:
  net::Descriptor& link(int rank) { return mesh_.peers[static_cast<std::size_t>(rank)]; }
  [[noreturn]] void fail(int peer, std::chrono::milliseconds deadline);

  int rank_;
  net::Mesh mesh_;
};

}  // namespace ferry::app
