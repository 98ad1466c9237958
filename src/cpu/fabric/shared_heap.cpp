#include "cpu/fabric/shared_heap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ferry/error.h"

namespace ferry::cpu {
namespace {

[[noreturn]] void refuse(const char* call, std::size_t bytes, const char* advice) {
  throw Error(ErrorKind::system, fmt::format("no memory of {} bytes that processes share: {}: {}; {}", bytes, call,
                                             std::strerror(errno), advice));
}

}  // namespace

net::Descriptor make_shared_memory(std::size_t bytes) {
  net::Descriptor memory(memfd_create("ferry", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory)
    refuse("memfd_create", bytes,
           "it needs Linux 3.17 and descriptors that are free (ulimit -n), and a container must "
           "allow the call");
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) refuse("ftruncate", bytes, "make max_tokens smaller");
  // A mapping whose memory became smaller would end its process by SIGBUS.
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refuse("F_ADD_SEALS", bytes, "the system must be able to seal a memfd");
  return memory;
}

std::shared_ptr<Heap> map_shared_memory(const net::Descriptor& memory, std::size_t bytes) {
  struct stat found {};
  if (fstat(memory.get(), &found) != 0 || static_cast<std::size_t>(found.st_size) < bytes)
    throw Error(ErrorKind::system,
                fmt::format("a rank shares {} bytes of memory where {} are wanted", found.st_size, bytes));
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) refuse("mmap", bytes, "make max_tokens smaller, or raise the limit (ulimit -v)");
  madvise(mapped, bytes, MADV_HUGEPAGE);  // refused where the system has none for shared memory, and that is fine
  return std::make_shared<Heap>(mapped, bytes);
}

}  // namespace ferry::cpu
