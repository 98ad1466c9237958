#include "shared/launcher.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace ferry {
namespace {

std::optional<int> number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;  // "2(x3)" of Slurm: the leading number is what counts
  return value;
}

std::optional<LaunchedProcess> process_in(const char* rank_name, const char* size_name, const char* host_name) {
  const std::optional<int> rank = number_in(rank_name);
  const std::optional<int> size = number_in(size_name);
  if (!rank || !size || *size < 1 || *rank < 0 || *rank >= *size) return std::nullopt;
  return LaunchedProcess{*rank, *size, number_in(host_name).value_or(*size)};
}

}  // namespace

std::optional<LaunchedProcess> launched_process() {
  if (const auto found = process_in("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"))
    return found;
  if (std::getenv("PMIX_NAMESPACE") == nullptr) return std::nullopt;
  return process_in("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE");
}

}  // namespace ferry
