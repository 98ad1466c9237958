// RankMemory: what one rank of these examples owns: the rows of its exchange, and what runs its experts on them.
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/ferry.h"

class RankMemory : public ferry::HostRows {
 public:
  using HostRows::HostRows;

  // Calls expert(group, values, result) for each row with a token: its values, and where its `hidden` results go.
  template <class Expert>
  void run_experts(const Expert& expert) {
    for_each_row([&](int group, std::int64_t row) { expert(group, values(row), result(row)); });
  }
};
