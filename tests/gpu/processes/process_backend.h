// A conformance backend whose ranks are processes: every process runs the same cases in the same order, each its own
// rank of them, and all agree on what came of each before they go on.
#pragma once

#include <functional>
#include <memory>

#include "conformance/suite.h"
#include "ferry/processes.h"
#include "net/meeting.h"

namespace ferry::test {

using MakeWorld = std::function<std::unique_ptr<World>(const ProcessPlace& place)>;

class ProcessBackend {
 public:
  ProcessBackend(const ProcessPlace& place, MakeWorld make_world);

  conformance::Backend backend(const char* name);
  int rank() const { return control_.rank(); }

  // What came of something on all ranks: empty where all went well, else what the first rank says that it did not on.
  // Collective.
  std::string agree(const std::string& mine);

 private:
  void run_ranks(int ranks, const std::function<void(World&)>& body);

  net::Meeting control_;
  MakeWorld make_world_;
  int calls_ = 0;
};

}  // namespace ferry::test
