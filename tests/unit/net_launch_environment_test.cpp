// The place of a process, from what launchers put into its environment.
#include "net/launch_environment.h"

#include <gmock/gmock.h>

#include <map>

#include "ferry/error.h"

namespace ferry::net {
namespace {

using Variables = std::map<std::string, std::string>;

ProcessPlace place(const Variables& variables, const ProcessPlace& given = {}) {
  return place_in(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      given);
}

std::string refusal(const Variables& variables, const ProcessPlace& given = {}) {
  try {
    place(variables, given);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(PlaceOfProcess, TakesWhatIsGivenBeforeWhatIsSet) {
  const Variables torch{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "100"}};
  const ProcessPlace given{"b:7", 3, 8, 2, "mine"};
  const ProcessPlace found = place(torch, given);
  EXPECT_EQ(found.address, "b:7");
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.job, "mine");
}

TEST(PlaceOfProcess, ReadsTorchrunAndKeepsOffTheStoresPort) {
  const ProcessPlace found = place(
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node3"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "node3:29501");
  EXPECT_EQ(place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "9"}}).address,
            "[fd00::1]:10");
}

TEST(PlaceOfProcess, ReadsOpenMpiOfOneHost) {
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"OMPI_MCA_ess_base_jobid", "3781689345"}};
  const ProcessPlace found = place(mpi);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_THAT(found.address, testing::StartsWith("127.0.0.1:6"));
  Variables other = mpi;
  other["OMPI_COMM_WORLD_RANK"] = "3";
  EXPECT_EQ(place(other).address, found.address) << "all processes of a job meet at one port";
  other["OMPI_MCA_ess_base_jobid"] = "3781689346";
  EXPECT_NE(place(other).address, found.address) << "another job has another port";
}

TEST(PlaceOfProcess, AsksForAnAddressWhereOpenMpiSpansHosts) {
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"OMPI_MCA_ess_base_jobid", "1"}}),
              testing::AllOf(testing::HasSubstr("rank 2"), testing::HasSubstr("FERRY_ADDRESS")));
}

TEST(PlaceOfProcess, ReadsSlurm) {
  const ProcessPlace found = place({{"SLURM_PROCID", "6"},
                                    {"SLURM_NTASKS", "16"},
                                    {"SLURM_LOCALID", "6"},
                                    {"SLURM_JOB_ID", "77"},
                                    {"SLURM_STEP_ID", "1"},
                                    {"SLURM_STEP_NODELIST", "gpu[07-08]"}});
  EXPECT_EQ(found.rank, 6);
  EXPECT_EQ(found.size, 16);
  EXPECT_THAT(found.address, testing::StartsWith("gpu07:6"));
  EXPECT_EQ(found.job, "slurm-77.1");
}

TEST(PlaceOfProcess, ReadsMpich) {
  const ProcessPlace found = place({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"FERRY_ADDRESS", "host:5"}});
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  EXPECT_EQ(found.address, "host:5");
}

TEST(PlaceOfProcess, SaysWhatIsMissingOrNoNumber) {
  EXPECT_THAT(refusal({}), testing::HasSubstr("rank and size"));
  EXPECT_THAT(refusal({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), testing::HasSubstr("RANK=one"));
  EXPECT_THAT(refusal({}, {"a:1", 4, 4, -1, ""}), testing::HasSubstr("rank 4 of 4"));
  EXPECT_EQ(place({}, {"", 0, 1, -1, ""}).size, 1) << "one process needs no address";
}

std::optional<LaunchedProcess> launched(const Variables& variables) {
  return launched_in([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchedProcess, ReadsOpenMpi) {
  const auto found =
      launched({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->on_this_host, 4);
}

TEST(LaunchedProcess, ReadsSlurmWithPmixOnly) {
  Variables slurm{{"PMIX_RANK", "3"},
                  {"SLURM_PROCID", "3"},
                  {"SLURM_NTASKS", "6"},
                  {"SLURM_STEP_NUM_TASKS", "6"},
                  {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}};
  EXPECT_FALSE(launched(slurm)) << "srun without PMIx starts no OpenSHMEM";
  slurm["PMIX_NAMESPACE"] = "job";
  const auto found = launched(slurm);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 6);
  EXPECT_EQ(found->on_this_host, 2) << "processes on a host, of 2(x3)";
}

TEST(LaunchedProcess, IsNoneWhereNothingOrNonsenseIsSet) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"RANK", "0"}, {"WORLD_SIZE", "2"}})) << "torchrun starts no OpenSHMEM";
  EXPECT_FALSE(launched({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
  EXPECT_FALSE(launched({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
  EXPECT_EQ(launched({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->on_this_host, 2)
      << "the launcher does not say: all";
}

TEST(FirstNode, TakesTheFirstNameOfASlurmList) {
  EXPECT_EQ(first_node("node3"), "node3");
  EXPECT_EQ(first_node("node3,node4"), "node3");
  EXPECT_EQ(first_node("node[03-07,9]"), "node03");
  EXPECT_EQ(first_node("a,b[1-2]"), "a");
  EXPECT_EQ(first_node("rack[1,2]-gpu,x"), "rack1-gpu");
  EXPECT_EQ(first_node("n[5]"), "n5");
}

}  // namespace
}  // namespace ferry::net
