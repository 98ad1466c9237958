#include "tool/bench/processes/put_link.h"

#include <utility>

#include "ferry/error.h"
#include "tool/ranks/job_starters.h"

namespace ferry::app {

static MakePutLink& registered() {
  static MakePutLink make = nullptr;
  return make;
}

void set_put_link(MakePutLink make) { registered() = make; }

std::unique_ptr<PutLink> make_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes) {
  if (registered() == nullptr) throw Error(ErrorKind::unsupported, shmem_starter().why_missing());
  return registered()(world, std::move(legs), most_bytes);
}

}  // namespace ferry::app
