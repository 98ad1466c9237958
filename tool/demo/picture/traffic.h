// What the routing of a layer makes ranks send: how many choices of an expert become how many messages, and from which
// rank to which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tool/demo/picture/svg.h"

namespace ferry::app {

struct ChoiceTraffic {
  int ranks = 0;
  std::int64_t choices = 0;             // (token, expert) pairs
  std::vector<std::uint64_t> messages;  // [ranks, ranks]: from source to expert rank, to itself included
  std::string format;                   // of the bytes that are shown
  std::uint64_t message_bytes = 0;

  std::uint64_t from_to(int source, int expert_rank) const {
    return messages[static_cast<std::size_t>(source * ranks + expert_rank)];
  }
  std::uint64_t all() const;
  std::uint64_t between() const;  // two different ranks
};

Drawn draw_traffic(const ChoiceTraffic& traffic, int top);

}  // namespace ferry::app
