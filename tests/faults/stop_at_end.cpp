// Loaded before `ferry`: the process of rank FERRY_LOSE_RANK stops, without an end, where the job is to end.
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

extern "C" void shmem_finalize() {
  static const auto finalize = reinterpret_cast<void (*)()>(dlsym(RTLD_NEXT, "shmem_finalize"));
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const lost = std::getenv("FERRY_LOSE_RANK");
  if (rank != nullptr && lost != nullptr && std::strcmp(rank, lost) == 0) kill(getpid(), SIGSTOP);
  finalize();
}
