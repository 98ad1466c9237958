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
    int first = 0;
    if constexpr (Part::kStrip > 1) {
      const int num_strips = hidden / (Part::kStrip * kBlock);
      for (int strip = 0; strip < num_strips; ++strip)
        non_finite += encode_part<Part::kLanes, Part::kPerThread, Part::kStrip>(
            group, source, strip * Part::kStrip * kBlock, Part::kStrip * kBlock, input_scale, payload, scales);
      first = num_strips * Part::kStrip;
    }
    // All threads of the group make the same number of turns: max_over needs every one of them.
    for (; first < num_blocks; first += blocks_at_once) {
      const int index = first + group.thread() / Part::kLanes;
      const int column = index * kBlock + lane * Part::kPerThread;
      const int count = columns_of(column, hidden, Part::kPerThread);
      non_finite += encode_part<Part::kLanes, Part::kPerThread, 1>(group, source, column, count, input_scale, payload,
                                                                   lane == 0 && index < num_blocks ? scales : nullptr);
    }
    return non_finite;
  }

  template <ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte* scales, int hidden, float input_scale,
                       float* out) const {
    constexpr int kPerThread = Parts<G>::kPerThread;
    constexpr int kStrip = Parts<G>::kStrip;
    const auto* stored = reinterpret_cast<const Stored*>(scales);
    int column = group.thread() * kPerThread;
    if constexpr (kStrip > 1) {
      for (; column <= hidden - kStrip * kBlock; column += kStrip * kBlock)
        decode_part<kStrip, kPerThread>(payload + packed_bytes<Element::kBits>(column), kPerThread,
                                        stored + column / kBlock, input_scale, out + column);
    }
    for (; column < hidden; column += group.size() * kPerThread)
      decode_part<1, kPerThread>(payload + packed_bytes<Element::kBits>(column), columns_of(column, hidden, kPerThread),
                                 stored + column / kBlock, input_scale, out + column);
  }

 private:
  // How a group of this kind shares the columns of a block.
  template <class G>
  struct Parts {
    static constexpr int kLanes = G::kWidth < kBlock / 8 ? G::kWidth : kBlock / 8;
    static constexpr int kPerThread = kBlock / kLanes;
    // A thread alone takes several blocks at a time, so that a compiler can work on their scales together.
    static constexpr int kStrip = kLanes > 1 || kBlock > 128 ? 1 : 256 / kBlock;
    static_assert(kBlock % 16 == 0 && kBlock % kLanes == 0 && kPerThread % 8 == 0,
                  "a block is shared by a power of two of threads, 8 columns or more each");
  };

  FERRY_HD static constexpr int columns_of(int column, int hidden, int most) {
    const int left = hidden - column;
    return left < 0 ? 0 : left < most ? left : most;
  }

  // One thread's part of kBlocks blocks. Returns how many of those whose scale it keeps are not finite.
  template <int kLanes, int kPerThread, int kBlocks, class G, class Source>
  FERRY_HD static int encode_part(const G& group, const Source& source, int column, int count, float input_scale,
                                  std::byte* payload, std::byte* scales) {
    std::uint32_t values[kBlocks * kPerThread];
    source.template load<kBlocks * kPerThread>(column, count, values);
    std::uint32_t amax[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      std::uint32_t largest = 0;
      for (int i = 0; i < kPerThread; ++i) largest = larger(largest, values[b * kPerThread + i] & kMagnitudeMask);
      amax[b] = group.template max_over<kLanes>(largest);
    }

    float multiplier[kBlocks];
    std::uint32_t keep[kBlocks];
    Stored stored[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      const bool finite = amax[b] < kInfinityBits;
      const BlockScale<Stored> scale = Scale::choose(finite ? amax[b] : 0u, input_scale);
      multiplier[b] = scale.multiplier;
      keep[b] = all_ones_if(finite);
      stored[b] = finite ? scale.stored : Scale::kNan;
    }

    std::uint32_t codes[kBlocks * kPerThread];
    for (int b = 0; b < kBlocks; ++b)
      for (int i = 0; i < kPerThread; ++i)
        codes[b * kPerThread + i] = Element::encode(values[b * kPerThread + i], multiplier[b]) & keep[b];
    store_codes(codes, count, payload + packed_bytes<Element::kBits>(column));

    int non_finite = 0;
    if (scales != nullptr) {
      for (int b = 0; b < kBlocks; ++b) {
        reinterpret_cast<Stored*>(scales)[column / kBlock + b] = stored[b];
        non_finite += keep[b] == 0 ? 1 : 0;
      }
    }
    return non_finite;
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

  // `count` columns of each of kBlocks blocks; less than kPerThread only where kBlocks is 1.
  template <int kBlocks, int kPerThread>
  FERRY_HD static void decode_part(const std::byte* in, int count, const Stored* scales, float input_scale,
                                   float* out) {
    std::uint32_t codes[kBlocks * kPerThread] = {};
    if constexpr (kBlocks * kPerThread == 8)
      load_eight<Element::kBits>(in, codes);
    else
      load_many<Element::kBits>(in, kBlocks > 1 ? kBlocks * kPerThread : count, codes);
    for (int b = 0; b < kBlocks; ++b)
      for (int i = 0; i < count; ++i)
        out[b * kPerThread + i] = Scale::decode(Element::decode(codes[b * kPerThread + i]), scales[b], input_scale);
  }
};

}  // namespace ferry::codec
