// How many ranks share a host, whoever started their processes.
#include "tool/ranks/ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "exchange/exchange_steps.h"

namespace ferry::app {
namespace {

// One end of a world of threads that says it is another kind.
class WorldOfKind final : public World {
 public:
  WorldOfKind(WorldKind kind, std::unique_ptr<World> inner) : kind_(kind), inner_(std::move(inner)) {}
  WorldKind kind() const override { return kind_; }
  const char* backend() const override { return to_string(kind_); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    inner_->all_gather(mine, all, mask, deadline);
  }
  void tell_aborted(const AbortNotice& notice) override { inner_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return inner_->abort_reason(rank); }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    return inner_->make_steps(shape, options, map);
  }

 private:
  WorldKind kind_;
  std::unique_ptr<World> inner_;
};

constexpr int kRanks = 4;

Ranks one_of(WorldKind kind) {
  std::vector<std::unique_ptr<World>> mine;
  mine.push_back(std::make_unique<WorldOfKind>(kind, std::move(make_thread_worlds(kRanks).front())));
  return {std::move(mine), {kHostMemory}};
}

struct SetVariables {
  explicit SetVariables(std::vector<std::pair<const char*, const char*>> all) : variables(std::move(all)) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  ~SetVariables() {
    for (const auto& variable : variables) unsetenv(variable.first);
  }
  SetVariables(const SetVariables&) = delete;
  SetVariables& operator=(const SetVariables&) = delete;

  std::vector<std::pair<const char*, const char*>> variables;
};

TEST(RanksOfThisHost, AreAllWhereTheWorldIsOfOneHost) {  // torchrun and users say nothing of hosts
  EXPECT_EQ(num_ranks_of_this_host(one_of(WorldKind::processes)), kRanks);
  EXPECT_EQ(num_ranks_of_this_host(one_of(WorldKind::cuda_processes)), kRanks);
}

TEST(RanksOfThisHost, AreThoseThatTheLauncherStartedHere) {
  EXPECT_EQ(num_ranks_of_this_host(one_of(WorldKind::nvshmem)), 1);
  {
    const SetVariables mpich({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}});
    EXPECT_EQ(num_ranks_of_this_host(one_of(WorldKind::nvshmem)), 2);
  }
  const SetVariables open_mpi(
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  EXPECT_EQ(num_ranks_of_this_host(one_of(WorldKind::shmem)), 3);
}

TEST(RanksOfThisHost, AreThoseOfTheProcessWhereItHasAll) {
  EXPECT_EQ(num_ranks_of_this_host({make_thread_worlds(kRanks), std::vector<int>(kRanks, kHostMemory)}), kRanks);
}

}  // namespace
}  // namespace ferry::app
