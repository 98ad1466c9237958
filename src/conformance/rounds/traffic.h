// Traffic: what the statistics of one rank must say after calls, counted from the routing of all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/rounds/scenario.h"

namespace ferry::conformance {

// Bytes of a message: codes and scales, a multiple of 16.
std::size_t message_size(const std::string& format, std::size_t hidden);

class Traffic {
 public:
  // `scenario`: of any call. With skip_a2a a rank sees itself alone.
  Traffic(const Scenario& scenario, int rank);

  // What a dispatch sends of its routing. One that is given a handle: all of it on GPUs, nothing on CPUs.
  enum class Routing { sent, sent_again, of_handle };
  void add_dispatch(const Scenario& scenario, Routing routing = Routing::sent);
  void add_combine(const Scenario& scenario);

  // Throws Failure unless all but times is as it was counted.
  void check(const Stats& stats) const;

 private:
  std::size_t place(int rank) const { return skips_ ? 0 : static_cast<std::size_t>(rank); }
  bool is_away(const Scenario& scenario, int rank) const;
  void add_messages(const Scenario& scenario);
  void add_routing(const Scenario& scenario);
  void add_dropped(const Scenario& scenario);
  void add_rows(const Scenario& scenario);

  Shape shape_;
  bool skips_;
  int rank_;
  int local_experts_;
  bool knows_experts_ = true;                    // no dispatch by counts was among the calls
  std::vector<std::uint64_t> messages_, bytes_;  // to each rank
  std::vector<ExpertTraffic> received_;          // [source, local expert]
  std::uint64_t dropped_ = 0, non_finite_ = 0, dispatches_ = 0, combines_ = 0;
};

}  // namespace ferry::conformance
