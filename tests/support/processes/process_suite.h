// A target of the conformance suite whose ranks are processes: every process runs the same cases in the same order,
// each its own rank of them, and all agree on what came of each before they go on.
#pragma once

#include <functional>
#include <memory>

#include "conformance/suite.h"
#include "ferry/worlds/processes.h"
#include "net/bootstrap.h"

namespace ferry::test {

using MakeWorld = std::function<std::unique_ptr<World>(const ProcessPlace& place)>;
using RunCase = std::function<void(const conformance::Case& each, const conformance::Target& target)>;

// All rounds of a case.
inline void run_whole(const conformance::Case& each, const conformance::Target& target) { each.run(target); }

class ProcessSuite {
 public:
  ProcessSuite(const ProcessPlace& place, MakeWorld make_world);

  // A target of ranks with the capabilities of GPU ranks. The caller adds to it.
  conformance::Target target(const char* name);
  // Runs the cases that `only` says: "" all; "quick" the quick ones; "orders/,sizes/" those whose names begin so;
  // "-orders/,sizes/" all others. Rank 0 prints what came of each. The exit code: 0 where some passed and none failed.
  // Collective.
  int run_suite(const conformance::Target& suite, const std::string& only, const RunCase& run_case = run_whole);

  int rank() const { return control_.rank(); }
  net::Bootstrap& control() { return control_; }

  // What came of something on all ranks: empty where all went well, else what the first rank says that it did not on.
  // Collective.
  std::string agree(const std::string& mine);

 private:
  void run_ranks(int ranks, const std::function<void(World&)>& body);

  net::Bootstrap control_;
  MakeWorld make_world_;
  int calls_ = 0;
};

}  // namespace ferry::test
