// A rank's heap that processes of this host share: memory without a name, which a descriptor stands for.
//
// It is a memfd and no file in /dev/shm: that one is often 64 MiB in containers, and a file stays there if its process
// is killed before it removed the name. The system frees this memory with its last mapping, however processes end. Its
// descriptor travels over a Unix socket (net::DescriptorChannel), which asks for no right to look into the other
// process, as /proc/PID/fd and pidfd_getfd do: containers often refuse that.
#pragma once

#include <cstddef>
#include <memory>

#include "cpu/fabric/host_fabric.h"
#include "net/socket/socket.h"

namespace ferry::cpu {

// Zeroed memory of at least `bytes`, which no process can make smaller or larger. Throws Error(system).
net::Descriptor make_shared_memory(std::size_t bytes);

// Maps `bytes` of it. The descriptor may be closed afterwards. Throws Error(system).
std::shared_ptr<Heap> map_shared_memory(const net::Descriptor& memory, std::size_t bytes);

}  // namespace ferry::cpu
