#include "tool/ranks/ranks_unasked.h"

#include "tool/ranks/job/job.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

int ranks_unasked(std::string_view name, int usual) {
  if (num_processes() == 1) return usual;
  const Backend& backend = name == "auto" ? choose_backend(name, num_processes()) : backend_named(name);
  return backend.ranks == RanksAre::processes ? num_processes() : usual;
}

}  // namespace ferry::app
