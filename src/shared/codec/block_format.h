// BlockFormat: every format that scales blocks of columns. One text for a CPU thread, a warp and a block of threads.
//
// A Spec names the format and gives kBlock, Element (element.h), Scale (scale_rule.h), kLayout and kAlignment.
// Neighbouring threads share a block, each with kPerThread of its columns; a thread alone takes the whole block.
#pragma once

#include "ferry/token_format.h"
#include "shared/codec/packing.h"
#include "shared/codec/scale_rule.h"
#include "shared/codec/source.h"

namespace ferry::codec {

template <class Spec>
class BlockFormat {
 public:
  using Element = typename Spec::Element;
  using Scale = typename Spec::Scale;
  using Stored = typename Scale::Stored;
  static constexpr int kBlock = Spec::kBlock;

  FERRY_HD static constexpr const char* name() { return Spec::kName; }
  FERRY_HD static constexpr int block() { return kBlock; }
  FERRY_HD static constexpr int scale_bytes() { return static_cast<int>(sizeof(Stored)); }
  FERRY_HD static constexpr ScaleLayout scale_layout() { return Spec::kLayout; }
  FERRY_HD static constexpr int alignment() { return Spec::kAlignment; }
  FERRY_HD static constexpr std::size_t payload_bytes(int hidden) { return packed_bytes<Element::kBits>(hidden); }

  template <ThreadGroup G>
  FERRY_HD int encode(const G& group, InputRow row, int hidden, float input_scale, std::byte* payload,
                      std::byte* scales) const {
    return with_source(
        row, [&](const auto& source) { return encode_from(group, source, hidden, input_scale, payload, scales); });
  }

  // As encode, from anything that offers load (source.h).
  template <ThreadGroup G, class Source>
  FERRY_HD static int encode_from(const G& group, const Source& source, int hidden, float input_scale,
                                  std::byte* payload, std::byte* scales) {
    using Part = Parts<G>;
    const int lane = group.thread() % Part::kLanes;
    const int num_blocks = (hidden + kBlock - 1) / kBlock;
    const int blocks_at_once = group.size() / Part::kLanes;
    int non_finite = 0;
    // All threads of the group make the same number of turns: max_over needs every one of them.
    for (int first = 0; first < num_blocks; first += blocks_at_once) {
      const int index = first + group.thread() / Part::kLanes;
      const int column = index * kBlock + lane * Part::kPerThread;
      const int count = columns_of(column, hidden, Part::kPerThread);
      const int found = encode_part<Part::kLanes, Part::kPerThread>(group, source, column, count, input_scale, payload,
                                                                    lane == 0 && index < num_blocks ? scales : nullptr);
      non_finite += found;
    }
    return non_finite;
  }

  template <ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte* scales, int hidden, float input_scale,
                       float* out) const {
    constexpr int kPerThread = Parts<G>::kPerThread;
    const auto* stored = reinterpret_cast<const Stored*>(scales);
    for (int column = group.thread() * kPerThread; column < hidden; column += group.size() * kPerThread) {
      const int count = columns_of(column, hidden, kPerThread);
      const Stored scale = stored[column / kBlock];
      std::uint32_t codes[kPerThread];
      load_codes(payload + packed_bytes<Element::kBits>(column), count, codes);
      for (int i = 0; i < kPerThread; ++i)
        if (i < count) out[column + i] = Scale::decode(Element::decode(codes[i]), scale, input_scale);
    }
  }

 private:
  // How a group of this kind shares the columns of a block.
  template <class G>
  struct Parts {
    static constexpr int kLanes = G::kWidth < kBlock / 8 ? G::kWidth : kBlock / 8;
    static constexpr int kPerThread = kBlock / kLanes;
    static_assert(kBlock % 16 == 0 && kBlock % kLanes == 0 && kPerThread % 8 == 0,
                  "a block is shared by a power of two of threads, 8 columns or more each");
  };

  FERRY_HD static constexpr int columns_of(int column, int hidden, int most) {
    const int left = hidden - column;
    return left < 0 ? 0 : left < most ? left : most;
  }

  // One thread's part of a block. Returns 1 where it keeps the block's scale and the block is not finite.
  template <int kLanes, int kPerThread, class G, class Source>
  FERRY_HD static int encode_part(const G& group, const Source& source, int column, int count, float input_scale,
                                  std::byte* payload, std::byte* scales) {
    std::uint32_t values[kPerThread];
    source.template load<kPerThread>(column, count, values);
    std::uint32_t amax = 0;
    for (int i = 0; i < kPerThread; ++i) amax = larger(amax, values[i] & kMagnitudeMask);
    amax = group.template max_over<kLanes>(amax);

    const bool finite = amax < kInfinityBits;
    const BlockScale<Stored> scale = Scale::choose(finite ? amax : 0u, input_scale);
    const std::uint32_t keep = finite ? ~0u : 0u;
    std::uint32_t codes[kPerThread];
    for (int i = 0; i < kPerThread; ++i) codes[i] = Element::encode(values[i], scale.multiplier) & keep;
    store_codes(codes, count, payload + packed_bytes<Element::kBits>(column));
    if (scales == nullptr) return 0;
    reinterpret_cast<Stored*>(scales)[column / kBlock] = finite ? scale.stored : Scale::kNan;
    return finite ? 0 : 1;
  }

  template <int kPerThread>
  FERRY_HD static void store_codes(const std::uint32_t (&codes)[kPerThread], int count, std::byte* out) {
    if constexpr (kPerThread == 8) {
      if (count == 8) store_eight<Element::kBits>(codes, out);
    } else if (count == kPerThread) {
      store_many<Element::kBits>(codes, kPerThread, out);
    } else {
      store_many<Element::kBits>(codes, count, out);
    }
  }

  template <int kPerThread>
  FERRY_HD static void load_codes(const std::byte* in, int count, std::uint32_t (&codes)[kPerThread]) {
    if constexpr (kPerThread == 8) {
      if (count == 8) load_eight<Element::kBits>(in, codes);
    } else if (count == kPerThread) {
      load_many<Element::kBits>(in, kPerThread, codes);
    } else {
      load_many<Element::kBits>(in, count, codes);
    }
  }
};

}  // namespace ferry::codec
