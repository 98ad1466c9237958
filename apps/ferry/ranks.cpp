// The table of backends, and what is refused of --backend, --ranks and --nodes.
#include "ferry/ranks.h"

#include <fmt/format.h>

#include <numeric>

#include "ferry/gpu.h"
#include "ferry/options.h"
#include "ferry/shmem.h"

namespace ferry::app {
namespace {

Ranks make_thread_ranks(int ranks, int) {
  return {make_thread_worlds(ranks), std::vector<int>(static_cast<std::size_t>(ranks), kHostMemory)};
}

// A GPU for each rank, in the order of their numbers.
Ranks make_gpu_ranks(int ranks, int) {
  std::vector<int> devices(static_cast<std::size_t>(ranks));
  std::iota(devices.begin(), devices.end(), 0);
  return {make_gpu_worlds(devices), devices};
}

// This process's rank of a job that all processes join here.
Ranks make_shmem_ranks(int ranks, int nodes) {
  Job& job = joined_job() != nullptr ? *joined_job() : join(start_shmem_job());
  std::vector<std::unique_ptr<World>> mine;
  mine.push_back(job.make_world(ranks, nodes));
  return {std::move(mine), {kHostMemory}};
}

int no_ranks() { return 0; }
Ranks make_none(int, int) { throw Error(ErrorKind::unsupported, "this build has no such ranks"); }

}  // namespace

const std::vector<Backend>& backends() {
  static const std::vector<Backend> list = {
      {"cpu", "threads of this process", [] { return std::string(); }, [] { return kMaxRanksPerNode; },
       make_thread_ranks, RanksAre::of_one_process},
      {"shmem", "processes under oshrun", why_no_shmem, num_shmem_ranks, make_shmem_ranks, RanksAre::processes},
      {"cuda", "GPUs of this host", why_no_gpus, num_gpus, make_gpu_ranks, RanksAre::of_one_process},
      {"nvshmem", "GPUs of many hosts", [] { return std::string("this build of the tool has no NVSHMEM ranks"); },
       no_ranks, make_none, RanksAre::processes},
  };
  return list;
}

const Backend& choose_backend(const std::string& name, int ranks) {
  const auto named = [](const std::string& wanted) -> const Backend& {
    for (const Backend& backend : backends())
      if (wanted == backend.name) return backend;
    throw Error(ErrorKind::unsupported, fmt::format("--backend {}: no such backend", wanted));
  };
  if (name == "auto" && num_processes() > 1 && named("shmem").why_missing().empty()) return named("shmem");
  if (name == "auto") return named(ranks >= 1 && ranks <= named("cuda").most_ranks() ? "cuda" : "cpu");
  const Backend& chosen = named(name);
  if (const std::string why = chosen.why_missing(); !why.empty())
    throw Error(ErrorKind::unsupported, fmt::format("--backend {}: {}; --backend cpu works", name, why));
  return chosen;
}

void require_ranks(const Backend& backend, int ranks, int nodes) {
  if (ranks < 1 || ranks > backend.most_ranks())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--ranks {}: must be 1 to {} with backend {}, whose ranks are {}", ranks,
                            backend.most_ranks(), backend.name, backend.ranks_are));
  if (backend.ranks == RanksAre::processes && ranks != backend.most_ranks())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--ranks {}: {} processes were started, and with backend {} each is a rank", ranks,
                            backend.most_ranks(), backend.name));
  if (backend.ranks == RanksAre::processes && (nodes < 1 || nodes > ranks))
    throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: must be 1 to --ranks, {}", nodes, ranks));
  if (nodes != 1 && backend.ranks == RanksAre::of_one_process)
    throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: backend {} has 1 node, its ranks are {}", nodes,
                                                         backend.name, backend.ranks_are));
}

}  // namespace ferry::app
