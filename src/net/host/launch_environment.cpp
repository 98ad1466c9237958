#include "net/host/launch_environment.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "ferry/error.h"
#include "net/host/process_above.h"

namespace ferry::net {
namespace {

// The variables of a launcher. `started` is set only in processes that it starts; null: its variables may also be set
// in a shell or a batch script. `shmem`: OpenSHMEM can start in its processes. A name is null where the launcher has no
// such variable.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* on_this_host;
  const char* started;
  bool shmem;
};
constexpr const char* kOpenMpiRank = "OMPI_COMM_WORLD_RANK";
constexpr const char* kOpenMpiHere = "OMPI_COMM_WORLD_LOCAL_SIZE";
constexpr const char* kHydraHere = "MPI_LOCALNRANKS";  // of MPICH's and Intel MPI's mpirun
constexpr const char* kSlurmHere = "SLURM_STEP_TASKS_PER_NODE";
constexpr const char* kSlurmSize = "SLURM_STEP_NUM_TASKS";
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr, nullptr, false},
    {kOpenMpiRank, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", kOpenMpiHere, kOpenMpiRank, true},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", kHydraHere, kHydraHere, false},
    {"PMIX_RANK", kSlurmSize, "SLURM_LOCALID", kSlurmHere, "PMIX_NAMESPACE", true},
    {"SLURM_PROCID", kSlurmSize, "SLURM_LOCALID", kSlurmHere, kSlurmSize, false},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, nullptr, false},
};

std::string text_of(const Environment& environment, const char* name) {
  const char* value = name == nullptr ? nullptr : environment(name);
  return value == nullptr ? "" : value;
}

std::optional<int> number_of(const Environment& environment, const char* name) {
  const std::string text = text_of(environment, name);
  if (text.empty()) return std::nullopt;
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw Error(ErrorKind::invalid_argument, fmt::format("the environment says {}={}, which is no number", name, text));
  return value;
}

void require_at_least(int least, const char* name, int value) {
  if (value < least)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the environment says {}={}; it must be {} or more", name, value, least));
}

// The number that a text begins with: Slurm says "2(x3)" of processes on hosts.
std::optional<int> leading_number(const Environment& environment, const char* name) {
  const std::string text = text_of(environment, name);
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// The same on all processes of a job, and seldom the same as another job's.
std::uint64_t number_of_job(const std::string& job) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Above the ephemeral ports (32768 to 60999 on Linux).
int port_of_job(const std::string& job) { return 61000 + static_cast<int>(number_of_job(job) % 4500); }

std::string slurm_job(const Environment& environment) {
  const std::string job = text_of(environment, "SLURM_JOB_ID");
  return job.empty() ? "" : "slurm-" + job + "." + text_of(environment, "SLURM_STEP_ID");
}

// For a job whose processes are all on this host, as mpirun says: text that only they share, or why there is none.
struct JobHere {
  std::string text;
  std::string why_not;
};

JobHere job_here(const Environment& environment, int size, const ProcessAbove& above) {
  for (const char* name : {kOpenMpiHere, kHydraHere}) {
    const std::optional<int> here = number_of(environment, name);
    if (!here) continue;
    if (*here != size) return {"", fmt::format(" (some are on other hosts: {}={})", name, *here)};
    if (name == kHydraHere) {
      // Its variables are the same in every job. But one proxy starts all processes of a job on a host.
      const std::string proxy = above ? above(kHydraProxy) : "";
      if (proxy.empty()) return {"", fmt::format(" (this one has no {} above it)", kHydraProxy)};
      return {"hydra-" + proxy, ""};
    }
    std::string job = text_of(environment, "PMIX_NAMESPACE");  // Open MPI 5; 4 has both, with one value
    if (job.empty()) job = text_of(environment, "OMPI_MCA_ess_base_jobid");
    if (job.empty()) return {"", " (neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid names their job)"};
    return {"mpi-" + job, ""};
  }
  return {};
}

// Finds the bootstrap address and the job's name where they are not given; otherwise says why it cannot.
std::string find_bootstrap_address(const Environment& environment, const ProcessAbove& above, ProcessPlace& place) {
  place.address = text_of(environment, "FERRY_ADDRESS");
  if (!place.address.empty()) return "";
  const std::string master = text_of(environment, "MASTER_ADDR");
  const std::optional<int> port = number_of(environment, "MASTER_PORT");
  const auto with_port = [](const std::string& host, int at) {
    return fmt::format(host.find(':') == std::string::npos ? fmt::runtime("{}:{}") : fmt::runtime("[{}]:{}"), host, at);
  };
  if (!master.empty() && port) {
    if (*port < 0 || *port >= 0xFFFF)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("the environment says MASTER_PORT={}; the ranks meet at the port after it, which must be at "
                      "most 65535. Give another MASTER_PORT, or FERRY_ADDRESS",
                      *port));
    place.address = with_port(master, *port + 1);
    return "";
  }
  // Before Slurm's: a shell in a step of Slurm may start several of these.
  const JobHere mpi = job_here(environment, place.size, above);
  if (!mpi.text.empty()) {
    place.address = with_port("127.0.0.1", port_of_job(mpi.text));
    if (place.job.empty()) place.job = fmt::format("{:016x}", number_of_job(mpi.text));
    return "";
  }
  const std::string nodes = text_of(environment, "SLURM_STEP_NODELIST");
  const std::string job = slurm_job(environment);
  if (!nodes.empty() && !job.empty()) place.address = with_port(first_node(nodes), port_of_job(job));
  return mpi.why_not;
}

std::optional<LaunchedProcess> find_launched(const Environment& environment, bool shmem) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.started == nullptr || launcher.shmem != shmem || environment(launcher.started) == nullptr) continue;
    const std::optional<int> rank = leading_number(environment, launcher.rank);
    const std::optional<int> size = leading_number(environment, launcher.size);
    if (!rank || !size || *size < 1 || *rank < 0 || *rank >= *size) continue;
    return LaunchedProcess{*rank, *size, leading_number(environment, launcher.on_this_host).value_or(*size)};
  }
  return std::nullopt;
}

const char* of_this_process(const char* name) { return std::getenv(name); }

}  // namespace

std::string first_node(const std::string& node_list) {
  const std::size_t bracket = node_list.find('[');
  const std::size_t comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const std::size_t end = node_list.find_first_of("-,]", bracket + 1);
  const std::size_t close = node_list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return node_list;
  const std::size_t after = node_list.find(',', close);
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1) +
         node_list.substr(close + 1, after == std::string::npos ? after : after - close - 1);
}

ProcessPlace place_in(const Environment& environment, const ProcessPlace& given, const ProcessAbove& above) {
  ProcessPlace place = given;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> rank = number_of(environment, launcher.rank);
    const std::optional<int> size = number_of(environment, launcher.size);
    if (!rank || !size) continue;
    if (place.rank < 0) require_at_least(0, launcher.rank, place.rank = *rank);
    if (place.size <= 0) require_at_least(1, launcher.size, place.size = *size);
    const std::optional<int> local = number_of(environment, launcher.local_rank);
    if (place.local_rank < 0 && local) place.local_rank = *local;
    break;
  }
  for (const Launcher& launcher : kLaunchers)  // PMI_RANK alone may be srun's, whose other variables say the rest
    if (place.local_rank < 0 && leading_number(environment, launcher.rank) == place.rank &&
        leading_number(environment, launcher.size) == place.size)
      place.local_rank = leading_number(environment, launcher.local_rank).value_or(-1);
  if (place.rank < 0 || place.size <= 0)
    throw Error(ErrorKind::invalid_argument,
                "rank and size of this process are not known: give them, start it by torchrun, mpirun or srun, or set "
                "RANK and WORLD_SIZE");
  if (place.rank >= place.size)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {} of {} ranks: ranks go from 0 to {}", place.rank, place.size, place.size - 1));
  if (place.all_gather) {
    if (!place.address.empty())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("rank {}: address ({}) and all_gather are both given; give one", place.rank, place.address));
    return place;
  }
  const std::string why = place.address.empty() ? find_bootstrap_address(environment, above, place) : "";
  if (place.address.empty() && place.size > 1)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: no address at which the {} processes meet{}: give host:port of rank 0, or set "
                            "FERRY_ADDRESS on all of them",
                            place.rank, place.size, why));
  if (place.job.empty()) place.job = slurm_job(environment).substr(0, 63);
  return place;
}

std::optional<LaunchedProcess> launched_in(const Environment& environment) { return find_launched(environment, true); }
std::optional<LaunchedProcess> launched_process() { return launched_in(of_this_process); }

std::optional<LaunchedProcess> launched_without_shmem_in(const Environment& environment) {
  return find_launched(environment, false);
}
std::optional<LaunchedProcess> launched_process_without_shmem() { return launched_without_shmem_in(of_this_process); }

}  // namespace ferry::net

namespace ferry {

ProcessPlace place_of_process(const ProcessPlace& given) {
  return net::place_in(net::of_this_process, given, net::process_above);
}

}  // namespace ferry
