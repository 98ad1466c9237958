// NvshmemWorld: one rank for each process and GPU, on any number of nodes. The bootstrap uses TCP; NVSHMEM has the
// memory and the puts to ranks of other nodes.
#include "nvshmem/nvshmem_world.h"

#include <fmt/core.h>

#include "cuda/world/process_place.h"
#include "exchange/log/reach_log.h"
#include "exchange/sizes/sizes.h"
#include "ferry/cuda/nvshmem_world.h"
#include "ferry/detail/layout/node_map.h"
#include "net/bootstrap_address.h"
#include "nvshmem/kernels/nvshmem_launch.h"

namespace ferry::cuda {
namespace {

// An exchange keeps its piece of the job's heap, and so the job.
RankDevice device_of(const NvshmemJob* job, int device) {
  RankDevice made{device};
  made.put_word = [job](int peer, std::byte* word, Epoch value) { job->put_word(peer, word, value); };
  made.finish_puts = [job] { job->finish_puts(); };
  return made;
}

}  // namespace

NvshmemWorld::NvshmemWorld(std::shared_ptr<NvshmemJob> job, std::unique_ptr<net::Bootstrap> bootstrap,
                           const NvshmemOptions& options, int device, bool ends_job)
    : GpuWorld(device_of(job.get(), device), options.staged, std::move(bootstrap)),
      job_(std::move(job)),
      nodes_(options.nodes),
      ranks_per_node_(options.ranks_per_node),
      ends_job_(ends_job) {
  const DeviceScope scope(device);
  together([&] { require_nodes(); }, {}, options.deadline);
  count_ranks_on_device(options.share_gpus, options.deadline);
  this->bootstrap().set_up_is_done();
  log_reach(*this, fmt::format("world of {} processes over NVSHMEM, device {}", size(), device));
}

NvshmemWorld::~NvshmemWorld() {
  // Where an exchange still uses the job, NVSHMEM runs until the process ends.
  if (!ends_job_ || job_.use_count() != 1) return;
  try {
    job_->end(bootstrap(), kPatienceAtTheEnd);
  } catch (const Error&) {
    // A rank has ended or does not come. NVSHMEM would wait for it forever, so it is not ended.
  }
}

bool NvshmemWorld::is_direct(int peer) const {
  if (peer == rank()) return true;
  if (nodes_ > 0 && !NodeMap{size(), nodes_}.same_node(rank(), peer)) return false;
  if (ranks_per_node_ > 0 && peer / ranks_per_node_ != rank() / ranks_per_node_) return false;
  return job_->heap_of(peer) != nullptr;
}

void NvshmemWorld::require_nodes() const {
  if (nodes_ != 0) require_valid(NodeMap{size(), nodes_});
  if (nodes_ != 0 && ranks_per_node_ != 0)
    throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: nodes is {} and ranks_per_node {}; give one of them",
                                                         rank(), nodes_, ranks_per_node_));
  if (ranks_per_node_ < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: ranks_per_node is {}; it must be 0 (by reach) or more", rank(), ranks_per_node_));
  for (int peer = 0; ranks_per_node_ > 0 && peer < size(); ++peer)
    if (peer / ranks_per_node_ == rank() / ranks_per_node_ && !is_direct(peer))
      throw Error(
          ErrorKind::unsupported,
          fmt::format("rank {}: NVSHMEM maps no memory of rank {}, which ranks_per_node = {} says is of the same "
                      "node; give fewer ranks per node",
                      rank(), peer, ranks_per_node_));
}

bool NvshmemWorld::has_remote_ranks() const {
  for (int peer = 0; peer < size(); ++peer)
    if (!is_direct(peer)) return true;
  return false;
}

// Kernels over DirectFabric have at most kMaxGpuRanks addresses.
Launchers NvshmemWorld::launchers() const {
  return has_remote_ranks() || size() > kMaxGpuRanks ? nvshmem_launchers() : GpuRank::launchers();
}
const char* NvshmemWorld::fabric() const { return nvshmem_launchers().fabric; }

GpuHeaps NvshmemWorld::make_heaps(std::size_t bytes, const ExchangeOptions& options) {
  const auto gather = [&](std::span<const std::byte> mine, std::span<std::byte> all) {
    // The job may have more processes than this world has ranks. Their entries stay zero.
    all_gather(mine, all.first(mine.size() * static_cast<std::size_t>(size())), options.mask, set_up_deadline(options));
  };
  const std::shared_ptr<std::byte> mine = NvshmemJob::take(job_, bytes, options.mask, gather);
  const std::ptrdiff_t offset = mine.get() - job_->heap();
  DeviceHeaps heaps(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer)
    if (!is_masked(options.mask, peer) && is_direct(peer))
      heaps[static_cast<std::size_t>(peer)] = {mine, job_->heap_of(peer) + offset};
  heaps[static_cast<std::size_t>(rank())] = mine;
  // I13: no rank goes on before every rank has zeroed its memory.
  barrier(options.mask, set_up_deadline(options));
  return heaps;
}

}  // namespace ferry::cuda

namespace ferry {

std::unique_ptr<ProcessWorld> make_nvshmem_world(const NvshmemOptions& options) {
  const ProcessPlace place = place_of_process(options.place);
  // Comes before the ranks meet: a rank that throws here leaves no other one in an all_gather.
  const net::Job job_at = net::job_of(place, kMaxRanks);
  const int device = cuda::choose_device(options.device, place);
  cuda::require_bulk_copies(device);
  auto bootstrap = std::make_unique<net::Bootstrap>(job_at, options.deadline);
  // Refuses devices before NVSHMEM starts: it can start only once.
  cuda::ranks_of_device(bootstrap->rank(), bootstrap->size(), device, options.share_gpus,
                        [&](auto mine, auto all) { bootstrap->all_gather(mine, all, {}, options.deadline); });
  auto job = cuda::NvshmemJob::start(*bootstrap, device, options.heap_bytes, options.deadline);
  return std::make_unique<cuda::NvshmemWorld>(std::move(job), std::move(bootstrap), options, device, true);
}

}  // namespace ferry
