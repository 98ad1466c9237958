// WordsAside: the words and tables of a CPU rank's exchange while another exchange has its memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "exchange/sizes/heap_pieces.h"
#include "ferry/detail/base/order.h"

namespace ferry::cpu {

class WordsAside {
 public:
  // Copies the words of `heap`, or notes that they are zero. From now on no thread runs what if_there() is given.
  // Another rank that aborts may store a word meanwhile.
  void leave(const HeapMap& map, const std::byte* heap, bool keeps) {
    std::vector<Epoch> words;
    for (const HeapPiece& piece : keeps ? heap_pieces(map, false) : std::vector<HeapPiece>{}) {
      const auto* const first = reinterpret_cast<const SignalWord*>(heap + piece.begin);
      for (std::size_t i = 0; i < piece.bytes / sizeof(SignalWord); ++i) words.push_back(load_relaxed(first[i]));
    }
    const std::lock_guard lock(guard_);
    words_ = std::move(words);
    is_there_ = false;
  }
  // Does nothing where they are there.
  void bring(const HeapMap& map, std::byte* heap) const {
    if (is_there_) return;
    const Epoch* from = words_.data();
    for (const HeapPiece& piece : heap_pieces(map, false)) {
      if (words_.empty()) {
        std::memset(heap + piece.begin, 0, piece.bytes);
        continue;
      }
      const std::size_t words = piece.bytes / sizeof(Epoch);
      std::memcpy(heap + piece.begin, from, piece.bytes);
      from += words;
    }
  }
  void hold() {
    const std::lock_guard lock(guard_);
    words_ = {};
    is_there_ = true;
  }
  // Runs body() where the words are there. From any thread.
  template <class Body>
  void if_there(const Body& body) {
    const std::lock_guard lock(guard_);
    if (is_there_) body();
  }

 private:
  static_assert(sizeof(SignalWord) == sizeof(Epoch) && HeapMap::kAlignment % sizeof(SignalWord) == 0);

  std::mutex guard_;
  bool is_there_ = true;      // the thread that makes calls writes it
  std::vector<Epoch> words_;  // empty: zeros
};

}  // namespace ferry::cpu
