// Whether this process prints: of a job of processes, the first alone does.
#pragma once

namespace ferry::app {

bool prints();  // true until keep_silent()
void keep_silent();

}  // namespace ferry::app
