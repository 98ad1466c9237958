// The table of backends, and what is refused of --backend, --ranks and --nodes.
#include "tool/ranks/ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/world/gpu_capabilities.h"
#include "net/host/launch_environment.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job/job_starters.h"
#include "tool/ranks/job/process_job.h"

namespace ferry::app {
namespace {

Ranks make_thread_ranks(int ranks, int) {
  return {make_thread_worlds(ranks), std::vector<int>(static_cast<std::size_t>(ranks), kHostMemory)};
}

// This process's rank of a job that all processes join here.
Ranks make_job_ranks(std::unique_ptr<Job> (*start)(bool staged), WorldKind kind, int ranks, int nodes, int device) {
  Job& job = joined_job() != nullptr ? *joined_job() : join(start, false, kind);
  std::vector<std::unique_ptr<World>> mine;
  mine.push_back(job.make_world(ranks, nodes));
  return {std::move(mine), {device}};
}

std::string why_no_gpus() { return gpus().why_none(); }
int num_gpus() { return gpus().count(); }
std::unique_ptr<Job> start_gpu_job(bool staged) { return gpus().start_job(staged); }

// GPUs in the order of their numbers; in a job of processes, the one of this process.
Ranks make_gpu_ranks(int ranks, int nodes) {
  if (num_processes() > 1)
    return make_job_ranks(start_gpu_job, WorldKind::cuda_processes, ranks, nodes, gpus().of_this_process());
  const std::vector<int> devices = gpus_of_ranks(ranks);
  return {gpus().make_worlds(devices, false), devices};
}

Ranks make_shmem_ranks(int ranks, int nodes) {
  return make_job_ranks(shmem_starter().start, WorldKind::shmem, ranks, nodes, kHostMemory);
}

int num_started_processes() { return has_launcher() ? num_processes() : 0; }
std::string why_no_processes() {
  if (has_launcher()) return "";
  return "its ranks are processes of this host, and no launcher started this one: use `torchrun --no-python "
         "--nproc-per-node RANKS ferry COMMAND --backend processes ...`, mpirun or srun, or set RANK, WORLD_SIZE and "
         "FERRY_ADDRESS";
}
Ranks make_process_ranks(int ranks, int nodes) {
  return make_job_ranks(start_process_job, WorldKind::processes, ranks, nodes, kHostMemory);
}

Ranks make_nvshmem_ranks(int ranks, int nodes) {
  return make_job_ranks(nvshmem_starter().start, WorldKind::nvshmem, ranks, nodes, gpus().of_this_process());
}

// Each has two kernels in a stream, and streams beyond 32 wait behind each other.
constexpr int kMostRanksOfGpu = 8;

// In a job each process is a rank, and may see its own GPU only.
int most_gpu_ranks() {
  if (num_processes() > 1 && num_gpus() > 0) return num_processes();
  return gpus_are_shared() ? std::min(kMostRanksOfGpu * num_gpus(), kMaxGpuRanks) : num_gpus();
}
bool gpus_are_enough(int ranks) {
  return num_gpus() > 0 && (gpus_are_shared() || (num_processes() > 1 ? num_gpus() == 1 || num_gpus() >= num_processes()
                                                                      : ranks <= num_gpus()));
}

}  // namespace

int num_ranks_of_this_host(const Ranks& ranks) {
  if (!ranks.is_part()) return ranks.here();
  const WorldKind kind = ranks.world().kind();
  if (kind == WorldKind::processes || kind == WorldKind::cuda_processes) return ranks.size();  // worlds of one host
  auto launched = net::launched_process();
  if (!launched) launched = net::launched_process_without_shmem();
  return launched ? launched->on_this_host : ranks.here();
}

const std::vector<Backend>& backends() {
  static const std::vector<Backend> list = {
      {"cpu", WorldKind::threads, "threads of this process", [] { return std::string(); },
       [] { return kMaxRanksPerNode; }, make_thread_ranks, RanksAre::of_one_process, nullptr},
      {"processes", WorldKind::processes, "processes of this host", why_no_processes, num_started_processes,
       make_process_ranks, RanksAre::processes, start_process_job},
      {"shmem", WorldKind::shmem, "processes under oshrun", shmem_starter().why_missing, shmem_starter().num_ranks,
       make_shmem_ranks, RanksAre::processes, shmem_starter().start},
      {"cuda", has_other_processes() ? WorldKind::cuda_processes : WorldKind::cuda, "GPUs of this host", why_no_gpus,
       most_gpu_ranks, make_gpu_ranks, has_other_processes() ? RanksAre::processes : RanksAre::of_one_process,
       start_gpu_job},
      {"nvshmem", WorldKind::nvshmem, "processes with a GPU each", nvshmem_starter().why_missing,
       nvshmem_starter().num_ranks, make_nvshmem_ranks, RanksAre::processes, nvshmem_starter().start},
  };
  return list;
}

static bool& shared() {
  static bool of_gpus = false;
  return of_gpus;
}
bool gpus_are_shared() { return shared(); }
void share_gpus() {
  shared() = true;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // streams of ranks that share a GPU do not wait behind each other
}

std::vector<int> gpus_of_ranks(int ranks) {
  const int used = std::min(ranks, num_gpus());  // as many ranks on each, or one more
  std::vector<int> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(gpus_are_shared() ? rank * used / ranks : rank);
  return devices;
}

bool is_gpu_backend(const Backend& backend) { return is_of_gpus(backend.kind); }

WorldCapabilities capabilities_of(const Backend& backend) {
  if (is_gpu_backend(backend)) return cuda::gpu_capabilities({.remote_ranks = backend.kind == WorldKind::nvshmem});
  return {.remote_ranks = backend.kind == WorldKind::shmem};
}

const Backend& backend_named(std::string_view name) {
  for (const Backend& backend : backends())
    if (name == backend.name) return backend;
  throw Error(ErrorKind::unsupported, fmt::format("--backend {}: no such backend", name));
}

const Backend& choose_backend(std::string_view name, int ranks) {
  if (name == "auto" && ranks >= 1 && gpus_are_enough(ranks)) return backend_named("cuda");
  if (name == "auto")
    return backend_named(num_processes() > 1 && backend_named("shmem").why_missing().empty() ? "shmem" : "cpu");
  const Backend& chosen = backend_named(name);
  if (gpus_are_shared() && !is_gpu_backend(chosen))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("--share-gpus: the ranks of --backend {} are {}; --backend cuda has GPUs", name, chosen.ranks_are));
  if (const std::string why = chosen.why_missing(); !why.empty())
    throw Error(ErrorKind::unsupported, fmt::format("--backend {}: {}; --backend cpu works", name, why));
  return chosen;
}

void require_ranks(const Backend& backend, int ranks, int nodes) {
  if (backend.ranks == RanksAre::processes && ranks != backend.most_ranks())
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("--ranks {}: {} processes were started, and with backend {} each is a rank: give --ranks {}", ranks,
                    backend.most_ranks(), backend.name, backend.most_ranks()));
  if (ranks < 1 || ranks > backend.most_ranks())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--ranks {}: must be 1 to {} with backend {}, whose ranks are {}{}", ranks,
                            backend.most_ranks(), backend.name, backend.ranks_are,
                            is_gpu_backend(backend) && !gpus_are_shared() && ranks > 0
                                ? "; demo, layer and verify take more with --share-gpus"
                                : ""));
  if (backend.ranks == RanksAre::processes && (nodes < 1 || nodes > ranks))
    throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: must be 1 to --ranks, {}", nodes, ranks));
  if (nodes != 1 && (backend.ranks == RanksAre::of_one_process || backend.kind == WorldKind::processes))
    throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: backend {} has 1 node, its ranks are {}", nodes,
                                                         backend.name, backend.ranks_are));
}

}  // namespace ferry::app
