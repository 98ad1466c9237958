// Which process and thread this is, without a call of the system: calls ask each time.
#pragma once

#include <sys/types.h>

namespace ferry::python {

// Once, before the others.
void watch_processes();

// As getpid(). A fork is noticed; clone() and _Fork() of C are not.
pid_t this_process();

// Whether this is the thread on which Python runs signal handlers.
bool is_main_thread();

}  // namespace ferry::python
