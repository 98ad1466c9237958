#include "support/processes/process_suite.h"

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include "support/free_port.h"

namespace ferry::test {
namespace {

constexpr std::chrono::milliseconds kControlDeadline{180'000};

struct Text {
  char bytes[1024];
};

net::Job control_job(const ProcessPlace& place) {
  net::Job job;
  if (place.size > 1) job.address = net::parse_address(place.address);
  job.rank = place.rank;
  job.size = place.size;
  job.name = "control";
  return job;
}

}  // namespace

ProcessSuite::ProcessSuite(const ProcessPlace& place, MakeWorld make_world)
    : control_(control_job(place), kControlDeadline), make_world_(std::move(make_world)) {}

std::string ProcessSuite::agree(const std::string& mine) {
  Text text{};
  std::strncpy(text.bytes, mine.c_str(), sizeof text.bytes - 1);
  std::vector<Text> all(static_cast<std::size_t>(control_.size()));
  control_.all_gather(std::as_bytes(std::span(&text, 1)), std::as_writable_bytes(std::span(all)), {}, kControlDeadline);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].bytes[0] != '\0') return "process " + std::to_string(rank) + ": " + all[rank].bytes;
  return "";
}

void ProcessSuite::run_ranks(int ranks, const std::function<void(World&)>& body) {
  const std::uint32_t port = rank() == 0 ? free_port() : 0u;
  std::vector<std::uint32_t> ports(static_cast<std::size_t>(control_.size()));
  control_.all_gather(std::as_bytes(std::span(&port, 1)), std::as_writable_bytes(std::span(ports)), {},
                      kControlDeadline);
  ++calls_;
  std::string failed, skipped;
  if (rank() < ranks) {
    try {
      ProcessPlace place;
      place.address = "127.0.0.1:" + std::to_string(ports[0]);
      place.rank = place.local_rank = rank();
      place.size = ranks;
      place.job = "call " + std::to_string(calls_);
      const std::unique_ptr<World> world = make_world_(place);
      body(*world);
    } catch (const conformance::Skipped& reason) {
      skipped = reason.what();
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }
  failed = agree(failed);
  if (!failed.empty()) throw conformance::Failure(rank(), "a rank of the world", "no error", failed);
  skipped = agree(skipped);
  if (!skipped.empty()) throw conformance::Skipped(skipped);
}

conformance::Target ProcessSuite::target(const char* name) {
  conformance::Target target;
  target.name = name;
  target.max_ranks = control_.size();
  target.run_ranks = [this](int ranks, const std::function<void(World&)>& body) { run_ranks(ranks, body); };
  return target;
}

namespace {

// `only`: quick; or first letters of names with commas between, after a '-' of those that are left out.
bool is_chosen(const conformance::Case& each, const std::string& only) {
  if (only == "quick") return each.quick;
  const bool leaves_out = only.starts_with('-');
  std::istringstream names(leaves_out ? only.substr(1) : only);
  bool is_named = only.empty();
  for (std::string name; std::getline(names, name, ',');) is_named = is_named || each.name.starts_with(name);
  return is_named != leaves_out;
}

}  // namespace

int ProcessSuite::run_suite(const conformance::Target& suite, const std::string& only, const RunCase& run_case) {
  int failures = 0;
  int passed = 0;
  for (const conformance::Case& each : conformance::all_cases()) {
    if (!is_chosen(each, only)) continue;
    std::string failed;
    std::string skipped;
    try {
      run_case(each, suite);
    } catch (const conformance::Skipped& reason) {
      skipped = reason.what();
    } catch (const std::exception& error) {
      failed = error.what();
    }
    failed = agree(failed);
    failures += failed.empty() ? 0 : 1;
    passed += failed.empty() && skipped.empty() ? 1 : 0;
    if (rank() != 0) continue;
    if (!failed.empty())
      std::printf("FAILED  %s: %s\n", each.name.c_str(), failed.c_str());
    else
      std::printf("%s %s %s\n", skipped.empty() ? "ok     " : "skipped", each.name.c_str(), skipped.c_str());
    std::fflush(stdout);
  }
  if (rank() == 0) std::printf("%d passed, %d failed\n", passed, failures);
  return passed > 0 && failures == 0 ? 0 : 1;
}

}  // namespace ferry::test
