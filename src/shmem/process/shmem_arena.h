// ShmemArena: the pieces of this process's symmetric memory. OpenSHMEM's malloc and free are collective and wait for
// all processes, so Ferry does not call them after start-up. Instead each process allocates from its own memory and
// tells the others the offset of a piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "cpu/fabric/host_waits.h"

namespace ferry::cpu {

class ShmemArena {
 public:
  static constexpr std::size_t kAlignment = 128;

  ShmemArena(std::byte* memory, std::size_t bytes);

  // The memory has any content. If none is left, waits for pieces that other ranks still hold, for each at most until
  // the deadline. Throws Error(system).
  std::byte* allocate(std::size_t bytes, std::chrono::milliseconds deadline);

  // I16: the piece is free when all of these words are set. A rank sets its word when it no longer writes to the piece.
  void retire(std::byte* piece, std::size_t bytes, std::vector<const SignalWord*> let_go);
  // The piece is never free again: some rank may write to it at any time.
  void lose(std::size_t bytes);

  std::byte* memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Retired {
    std::byte* piece;
    std::size_t bytes;
    std::vector<const SignalWord*> let_go;
  };

  static std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  std::byte* take(std::size_t bytes);
  void give(std::byte* piece, std::size_t bytes);
  void give_what_was_let_go();
  [[noreturn]] void refuse(std::size_t bytes) const;

  std::byte* memory_;
  std::size_t bytes_;
  std::mutex guard_;
  std::map<std::byte*, std::size_t> free_;
  std::deque<Retired> retired_;
  std::size_t lost_ = 0;
};

}  // namespace ferry::cpu
