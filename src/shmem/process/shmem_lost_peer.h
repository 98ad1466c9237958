// Keeps a process alive when a process ends that UCX has TCP connections to. Bytes to the lost process vanish and none
// arrive from it, as if a cable had been pulled. Deadlines then report it.
//
// UCX 1.13, which carries Open MPI's OpenSHMEM, would end this process if it cannot acknowledge bytes of the lost one.
// So this file replaces three functions of UCX that write to and read from sockets. That works only if the program
// exports them to the shared libraries it loads; the CMake target ferry::shmem asks the linker to.
#pragma once

namespace ferry::cpu::shmem {

// It is on from start-up until OpenSHMEM ends, since its end needs to see connections close.
void hide_lost_peers(bool hide);

}  // namespace ferry::cpu::shmem
