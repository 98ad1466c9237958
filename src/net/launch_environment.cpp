#include "net/launch_environment.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "ferry/error.h"

namespace ferry::net {
namespace {

// What a launcher calls the numbers. `started` is there where OpenSHMEM and MPI can start in its processes; null: not
// by what it sets, and then nobody asks how many are on this host.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* on_this_host;
  const char* started;
};
constexpr const char* kOpenMpiRank = "OMPI_COMM_WORLD_RANK";
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr, nullptr},
    {kOpenMpiRank, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", kOpenMpiRank},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr, nullptr},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "PMIX_NAMESPACE"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, nullptr},
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

// The number that a text begins with: Slurm says "2(x3)" of processes on hosts.
std::optional<int> leading_number(const Environment& environment, const char* name) {
  const std::string text = text_of(environment, name);
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// The same on all processes of a job, and seldom that of another: above the ports that systems give out by themselves
// (32768 to 60999 on Linux).
int port_of_job(const std::string& job) {
  std::uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 61000 + static_cast<int>(hash % 4500);
}

std::string slurm_job(const Environment& environment) {
  const std::string job = text_of(environment, "SLURM_JOB_ID");
  return job.empty() ? "" : "slurm-" + job + "." + text_of(environment, "SLURM_STEP_ID");
}

std::string address_in(const Environment& environment, const ProcessPlace& place) {
  std::string own = text_of(environment, "FERRY_ADDRESS");
  if (!own.empty()) return own;
  const std::string master = text_of(environment, "MASTER_ADDR");
  const std::optional<int> port = number_of(environment, "MASTER_PORT");
  const auto with_port = [](const std::string& host, int at) {
    return fmt::format(host.find(':') == std::string::npos ? fmt::runtime("{}:{}") : fmt::runtime("[{}]:{}"), host, at);
  };
  if (!master.empty() && port) return with_port(master, *port + 1);
  const std::string nodes = text_of(environment, "SLURM_STEP_NODELIST");
  const std::string job = slurm_job(environment);
  if (!nodes.empty() && !job.empty()) return with_port(first_node(nodes), port_of_job(job));
  const std::optional<int> here = number_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  const std::string mpi_job = text_of(environment, "OMPI_MCA_ess_base_jobid");
  if (here && *here == place.size && !mpi_job.empty()) return with_port("127.0.0.1", port_of_job(mpi_job));
  return "";
}

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

ProcessPlace place_in(const Environment& environment, const ProcessPlace& given) {
  ProcessPlace place = given;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> rank = number_of(environment, launcher.rank);
    const std::optional<int> size = number_of(environment, launcher.size);
    if (!rank || !size) continue;
    if (place.rank < 0) place.rank = *rank;
    if (place.size <= 0) place.size = *size;
    const std::optional<int> local = number_of(environment, launcher.local_rank);
    if (place.local_rank < 0 && local) place.local_rank = *local;
    break;
  }
  if (place.rank < 0 || place.size <= 0)
    throw Error(ErrorKind::invalid_argument,
                "rank and size of this process are not known: give them, start it by torchrun, mpirun or srun, or set "
                "RANK and WORLD_SIZE");
  if (place.rank >= place.size)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {} of {} ranks: ranks go from 0 to {}", place.rank, place.size, place.size - 1));
  if (place.address.empty()) place.address = address_in(environment, place);
  if (place.address.empty() && place.size > 1)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: no address at which the {} processes meet: give host:port of rank 0, or set "
                            "FERRY_ADDRESS on all of them",
                            place.rank, place.size));
  if (place.job.empty()) place.job = slurm_job(environment).substr(0, 63);
  return place;
}

std::optional<LaunchedProcess> launched_in(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.started == nullptr || environment(launcher.started) == nullptr) continue;
    const std::optional<int> rank = leading_number(environment, launcher.rank);
    const std::optional<int> size = leading_number(environment, launcher.size);
    if (!rank || !size || *size < 1 || *rank < 0 || *rank >= *size) continue;
    return LaunchedProcess{*rank, *size, leading_number(environment, launcher.on_this_host).value_or(*size)};
  }
  return std::nullopt;
}

std::optional<LaunchedProcess> launched_process() {
  return launched_in([](const char* name) { return std::getenv(name); });
}

}  // namespace ferry::net

namespace ferry {

ProcessPlace place_of_process(const ProcessPlace& given) {
  return net::place_in([](const char* name) { return std::getenv(name); }, given);
}

}  // namespace ferry
