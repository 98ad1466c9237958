// The place of a process, from what launchers put into its environment.
#include "net/host/launch_environment.h"

#include <gmock/gmock.h>

#include <map>

#include "ferry/error.h"

namespace ferry::net {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// `proxy`: what the process above that is asked for is.
ProcessPlace place(const Variables& variables, const ProcessPlace& given = {}, const std::string& proxy = "") {
  return place_in(of(variables), given,
                  [&](const char* name) { return name == std::string("hydra_pmi_proxy") ? proxy : ""; });
}

std::string refusal(const Variables& variables, const ProcessPlace& given = {}, const std::string& proxy = "") {
  try {
    place(variables, given, proxy);
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

TEST(PlaceOfProcess, RefusesAMasterPortThatNoPortFollows) {
  for (const char* port : {"65535", "2147483647", "-1"}) {
    const Variables torch{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node3"}, {"MASTER_PORT", port}};
    EXPECT_THAT(refusal(torch), testing::AllOf(testing::HasSubstr(port), testing::HasSubstr("65535"))) << port;
  }
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

// As printed by processes of Open MPI 5.0.11.
Variables open_mpi_5(const std::string& rank) {
  return {{"OMPI_COMM_WORLD_RANK", rank},      {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_RANK", rank},           {"PMIX_NAMESPACE", "prterun-vm-5422@1"}};
}

TEST(PlaceOfProcess, ReadsOpenMpi5OfOneHost) {
  const ProcessPlace found = place(open_mpi_5("1"));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_THAT(found.address, testing::StartsWith("127.0.0.1:6"));
  EXPECT_EQ(place(open_mpi_5("0")).address, found.address);
  EXPECT_EQ(place(open_mpi_5("0")).job, found.job);
  Variables other = open_mpi_5("1");
  other["PMIX_NAMESPACE"] = "prterun-vm-5423@1";
  EXPECT_NE(place(other).address, found.address);
  EXPECT_NE(place(other).job, found.job) << "jobs whose ports are one by chance never meet";
}

TEST(PlaceOfProcess, KeepsTheJobOfLongHostNamesApart) {
  Variables one = open_mpi_5("0");
  Variables other = one;
  one["PMIX_NAMESPACE"] = "prterun-" + std::string(100, 'h') + "-1@1";
  other["PMIX_NAMESPACE"] = "prterun-" + std::string(100, 'h') + "-2@1";
  EXPECT_NE(place(one).job.substr(0, 48), place(other).job.substr(0, 48)) << "the tool keeps 48 characters";
}

TEST(PlaceOfProcess, TakesNoNameOfTheJobBesideAnAddress) {
  Variables mpi = open_mpi_5("1");
  mpi["FERRY_ADDRESS"] = "node:5000";
  EXPECT_EQ(place(mpi).address, "node:5000");
  EXPECT_EQ(place(mpi).job, "") << "processes of several mpirun may meet there";
  EXPECT_EQ(place(open_mpi_5("1"), {"node:5000", -1, 0, -1, ""}).job, "");
}

TEST(PlaceOfProcess, AsksForAnAddressWhereOpenMpiSpansHosts) {
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"OMPI_MCA_ess_base_jobid", "1"}}),
              testing::AllOf(testing::HasSubstr("rank 2"), testing::HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE=2"),
                             testing::HasSubstr("FERRY_ADDRESS")));
}

TEST(PlaceOfProcess, AsksForAnAddressWhereNothingNamesTheJob) {
  Variables mpi = open_mpi_5("1");
  mpi.erase("PMIX_NAMESPACE");
  EXPECT_THAT(refusal(mpi), testing::AllOf(testing::HasSubstr("PMIX_NAMESPACE"), testing::HasSubstr("FERRY_ADDRESS")));
}

// As printed by processes of MPICH 5.0.2 and Intel MPI 2021.19.
Variables hydra(const std::string& rank, const std::string& here = "3") {
  return {{"PMI_RANK", rank}, {"PMI_SIZE", "3"}, {"PMI_FD", "9"}, {"MPI_LOCALRANKID", rank}, {"MPI_LOCALNRANKS", here}};
}

TEST(PlaceOfProcess, ReadsMpichOfOneHost) {
  const ProcessPlace found = place(hydra("2"), {}, "77-1234");
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.size, 3);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_THAT(found.address, testing::StartsWith("127.0.0.1:6"));
  EXPECT_EQ(place(hydra("0"), {}, "77-1234").address, found.address);
  EXPECT_EQ(place(hydra("0"), {}, "77-1234").job, found.job);
  EXPECT_NE(place(hydra("2"), {}, "77-1235").address, found.address) << "another proxy, with a number that came again";
  EXPECT_NE(place(hydra("2"), {}, "77-1235").job, found.job);
}

TEST(PlaceOfProcess, AsksForAnAddressWhereMpichSpansHostsOrHasNoProxy) {
  EXPECT_THAT(refusal(hydra("2", "1"), {}, "77-1234"),
              testing::AllOf(testing::HasSubstr("MPI_LOCALNRANKS=1"), testing::HasSubstr("FERRY_ADDRESS")));
  EXPECT_THAT(refusal(hydra("2")),
              testing::AllOf(testing::HasSubstr("hydra_pmi_proxy"), testing::HasSubstr("FERRY_ADDRESS")));
}

TEST(PlaceOfProcess, TakesMpirunsJobBeforeSlurmsStep) {
  Variables both = hydra("2");
  both.insert({{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "1"}, {"SLURM_STEP_NODELIST", "gpu1"}});
  EXPECT_THAT(place(both, {}, "77-1234").address, testing::StartsWith("127.0.0.1:"))
      << "a shell of the step may start several";
  EXPECT_THAT(place(both).address, testing::StartsWith("gpu1:")) << "without a proxy all the same meet at the node";
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

TEST(PlaceOfProcess, ReadsTheNumbersOfAStepOfSlurm) {
  const ProcessPlace found = place({{"SLURM_PROCID", "1"},
                                    {"SLURM_NTASKS", "16"},
                                    {"SLURM_STEP_NUM_TASKS", "2"},
                                    {"SLURM_JOB_ID", "77"},
                                    {"SLURM_STEP_NODELIST", "gpu1"}});
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2) << "not that of the allocation";
}

TEST(PlaceOfProcess, TakesTheLocalRankOfSlurmWherePmi2DoesNotSay) {
  const Variables pmi2{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"FERRY_ADDRESS", "host:5"}};
  EXPECT_EQ(place(pmi2).local_rank, -1);
  Variables slurm = pmi2;
  slurm.insert({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(place(slurm).local_rank, 1);
  slurm["SLURM_PROCID"] = "0";
  EXPECT_EQ(place(slurm).local_rank, -1) << "of a batch script, or of another step";
}

TEST(PlaceOfProcess, ReadsMpichWithAnAddress) {
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

TEST(PlaceOfProcess, NamesAVariableThatIsOutOfItsLimits) {
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
              testing::StrEq("the environment says WORLD_SIZE=0; it must be 1 or more"));
  EXPECT_THAT(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}),
              testing::StrEq("the environment says RANK=-1; it must be 0 or more"));
  EXPECT_THAT(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "-2"}}), testing::HasSubstr("PMI_SIZE=-2"));
  EXPECT_EQ(place({{"RANK", "-1"}, {"WORLD_SIZE", "0"}}, {"", 0, 1, -1, ""}).size, 1) << "both are given";
}

std::optional<LaunchedProcess> launched(const Variables& variables) { return launched_in(of(variables)); }

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

TEST(LaunchedProcess, ReadsMpichAndPlainSlurmWhereNoShmemIsNeeded) {
  EXPECT_FALSE(launched(hydra("2")));
  const auto mpich = launched_without_shmem_in(of(hydra("2", "1")));
  ASSERT_TRUE(mpich);
  EXPECT_EQ(mpich->rank, 2);
  EXPECT_EQ(mpich->size, 3);
  EXPECT_EQ(mpich->on_this_host, 1);
  const Variables batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "0"}};
  EXPECT_FALSE(launched_without_shmem_in(of(batch))) << "a batch script is no process of a job";
  Variables step = batch;
  step.insert({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  const auto slurm = launched_without_shmem_in(of(step));
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->size, 4);
  EXPECT_EQ(slurm->on_this_host, 2);
  EXPECT_FALSE(launched_without_shmem_in(of(open_mpi_5("1"))));
  EXPECT_TRUE(launched(open_mpi_5("1")));
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
