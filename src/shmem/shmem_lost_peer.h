// What happens to UCX's TCP connections when the process at the other end is gone: nothing. Bytes to it vanish and none
// come, as where a cable was pulled, and deadlines do the rest.
//
// Left to itself UCX 1.13, which carries Open MPI's OpenSHMEM, ends the process where it cannot acknowledge what the
// lost one had still sent, so that one rank takes others with it. So three functions of UCX that write to and read from
// sockets are replaced here. This works where the program shows them to the shared libraries it loads: the CMake target
// ferry::shmem asks the linker for that.
#pragma once

namespace ferry::cpu::shmem {

// From start-up until the end of OpenSHMEM, which needs to see connections close.
void hide_lost_peers(bool hide);

}  // namespace ferry::cpu::shmem
