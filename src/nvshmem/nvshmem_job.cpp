#include "nvshmem/nvshmem_job.h"

#include <fmt/core.h>
#include <nvshmem_host.h>

#include <cstdlib>
#include <vector>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/error.h"

namespace ferry::cuda {
namespace {

// A process has one NVSHMEM, which cannot start again after its end.
bool& has_started() {
  static bool started = false;
  return started;
}

nvshmemx_uniqueid_t agree_on_id(net::Bootstrap& bootstrap, std::chrono::milliseconds deadline) {
  nvshmemx_uniqueid_t mine = NVSHMEMX_UNIQUEID_INITIALIZER;
  int status = bootstrap.rank() == 0 ? nvshmemx_get_uniqueid(&mine) : 0;
  std::vector<nvshmemx_uniqueid_t> all(static_cast<std::size_t>(bootstrap.size()), mine);
  bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, deadline);
  std::vector<int> statuses(all.size());
  bootstrap.all_gather(std::as_bytes(std::span(&status, 1)), std::as_writable_bytes(std::span(statuses)), {}, deadline);
  if (statuses[0] != 0)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: NVSHMEM gives rank 0 no unique id (status {}); it needs a "
                            "network interface (NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME)",
                            bootstrap.rank(), statuses[0]));
  return all[0];
}

}  // namespace

std::shared_ptr<NvshmemJob> NvshmemJob::start(net::Bootstrap& bootstrap, int device, std::size_t heap_bytes,
                                              std::chrono::milliseconds deadline) {
  if (has_started())
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: NVSHMEM has been started in this process already, and can be started once",
                            bootstrap.rank()));
  const DeviceScope scope(device);
  // NVSHMEM reads it at its start, and only if the heap cannot grow. NVSHMEM uses some of it itself.
  setenv("NVSHMEM_SYMMETRIC_SIZE", std::to_string(heap_bytes + (std::size_t{256} << 20)).c_str(), 0);
  nvshmemx_uniqueid_t id = agree_on_id(bootstrap, deadline);
  has_started() = true;
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_set_attr_uniqueid_args(bootstrap.rank(), bootstrap.size(), &id, &attributes);
  const nvshmemi_version_t version{NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
                                   NVSHMEM_VENDOR_PATCH_VERSION};
  int provided = 0;
  const int status =
      nvshmemi_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided, NVSHMEMX_INIT_WITH_UNIQUEID, &attributes, version);
  if (status != 0)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: NVSHMEM does not start (status {}); NVSHMEM_DEBUG=INFO says why",
                            bootstrap.rank(), status));
  return std::shared_ptr<NvshmemJob>(new NvshmemJob(bootstrap, device, heap_bytes));
}

NvshmemJob::NvshmemJob(net::Bootstrap& bootstrap, int device, std::size_t heap_bytes)
    : device_(device), rank_(bootstrap.rank()), size_(bootstrap.size()), arena_(heap_bytes, bootstrap.size()) {
  heap_ = static_cast<std::byte*>(nvshmem_malloc(heap_bytes));
  if (heap_ == nullptr)
    throw Error(
        ErrorKind::system,
        fmt::format("rank {}: NVSHMEM has no symmetric heap of {} bytes; give a smaller heap_bytes, or a larger "
                    "NVSHMEM_SYMMETRIC_SIZE",
                    rank_, heap_bytes));
}

NvshmemJob::~NvshmemJob() = default;

void NvshmemJob::end(net::Bootstrap& bootstrap, std::chrono::milliseconds deadline) {
  const std::byte here{1};
  std::vector<std::byte> all(static_cast<std::size_t>(bootstrap.size()));
  bootstrap.all_gather(std::span(&here, 1), all, {}, deadline);
  const DeviceScope scope(device_);
  has_ended_ = true;
  nvshmem_free(heap_);
  nvshmem_finalize();
}

std::byte* NvshmemJob::heap_of(int rank) const { return static_cast<std::byte*>(nvshmem_ptr(heap_, rank)); }

void NvshmemJob::put_word(int peer, std::byte* word, Epoch value) const {
  static_assert(sizeof value == sizeof(std::uint64_t));
  std::byte* const heap = heap_of(peer);
  if (heap == nullptr) return nvshmem_uint64_p(reinterpret_cast<std::uint64_t*>(word), value, peer);
  const SideStream stream;
  cuda_check(cudaMemcpyAsync(heap + (word - heap_), &value, sizeof value, cudaMemcpyDefault, stream.get()),
             "cudaMemcpyAsync");
  stream.wait();
}

void NvshmemJob::finish_puts() const {
  nvshmem_quiet();
  complete_all_puts();
}

std::shared_ptr<std::byte> NvshmemJob::take(const std::shared_ptr<NvshmemJob>& job, std::size_t bytes,
                                            const RankMask& mask, const Gather& gather) {
  const auto ranks = static_cast<std::size_t>(job->size_);
  std::vector<ArenaHoldings> mine;
  {
    const std::lock_guard lock(job->guard_);
    mine.assign(job->arena_.view().begin(), job->arena_.view().end());
  }
  // A world may have fewer ranks than the job. The other processes hold no piece of it.
  std::vector<ArenaHoldings> views(ranks * ranks);
  gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(views)));
  ArenaPiece piece;
  {
    const std::lock_guard lock(job->guard_);
    piece = job->arena_.take(bytes, views, mask);
  }
  std::shared_ptr<std::byte> memory(job->heap_ + piece.begin, [job, piece](std::byte*) { job->release(piece); });
  cuda_check(cudaMemset(memory.get(), 0, bytes), "cudaMemset");
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return memory;
}

void NvshmemJob::release(const ArenaPiece& piece) {
  if (!has_ended_) {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device_);
    complete_all_puts();
    cudaSetDevice(before);
  }
  const std::lock_guard lock(guard_);
  arena_.release(rank_, piece);
}

}  // namespace ferry::cuda
