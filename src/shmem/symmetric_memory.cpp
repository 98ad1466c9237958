#include "shmem/symmetric_memory.h"

#include <cstring>

namespace ferry::cpu {

namespace {

// The value of a rank's last signal to a piece. The network reads it late, so it is static.
const SignalWord kLetGo{1};

}  // namespace

std::size_t SymmetricMemory::header_bytes() const {
  const std::size_t words =
      (static_cast<std::size_t>(nodes_.ranks) + 1 + kValues + kRounds * kMostTogether) * sizeof(SignalWord);
  return (words + ShmemArena::kAlignment - 1) / ShmemArena::kAlignment * ShmemArena::kAlignment;
}

SymmetricMemory::SymmetricMemory(std::shared_ptr<ShmemProcess> process, const NodeMap& nodes, std::size_t bytes,
                                 std::chrono::milliseconds deadline)
    : process_(std::move(process)),
      nodes_(nodes),
      rank_(process_->rank()),
      bytes_(bytes),
      mine_(process_->arena().allocate(header_bytes() + bytes, deadline) + header_bytes()),
      peers_(static_cast<std::size_t>(nodes.ranks)) {
  std::memset(mine_ - header_bytes(), 0, header_bytes());
  peers_[static_cast<std::size_t>(rank_)] = {mine_, mine_};
}

std::uint64_t SymmetricMemory::offset() const { return static_cast<std::uint64_t>(mine_ - process_->arena().memory()); }

void SymmetricMemory::connect(const std::vector<std::uint64_t>& offsets) {
  connected_ = true;
  for (int peer = 0; peer < ranks(); ++peer) {
    const std::uint64_t offset = offsets[static_cast<std::size_t>(peer)];
    if (offset == kNoOffset) continue;
    std::byte* heap = process_->mapped(peer);
    Peer& each = peers_[static_cast<std::size_t>(peer)];
    each.remote = process_->arena().memory() + offset;
    if (heap != nullptr && nodes_.is_direct(rank_, peer, true)) each.direct = heap + offset;
  }
}

SymmetricMemory::~SymmetricMemory() {
  if (process_->has_ended()) return;
  if (!connected_) {
    process_->arena().lose(header_bytes() + bytes_);
    return;
  }
  std::vector<const SignalWord*> let_go;
  for (int peer = 0; peer < ranks(); ++peer) {
    const Peer& each = peers_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || each.remote == nullptr) continue;
    let_go.push_back(&header()[peer]);
    if (each.direct != nullptr) {
      finish_stores({});
      store_release(reinterpret_cast<SignalWord*>(each.direct - header_bytes())[rank_], kLetGo.raw);
      continue;
    }
    shmem::fence();
    shmem::put(each.remote - header_bytes() + static_cast<std::size_t>(rank_) * sizeof(SignalWord), &kLetGo,
               sizeof(SignalWord), peer);
  }
  process_->arena().retire(mine_ - header_bytes(), header_bytes() + bytes_, std::move(let_go));
}

}  // namespace ferry::cpu
