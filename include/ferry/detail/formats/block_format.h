// BlockFormat: every format that scales blocks of columns. A CPU thread, a warp and a block of threads run the same
// text.
//
// A Spec names the format and gives kBlock, Element (element.h), Scale (scale_rule.h), kLayout and kAlignment.
// Neighbouring threads of a group share a block of columns. Each thread takes kPerThread columns, 16 where the group is
// wide enough. A single thread takes the whole block, in loops that a compiler vectorises.
#pragma once

#include "ferry/detail/formats/convert.h"
#include "ferry/detail/formats/packing.h"
#include "ferry/detail/formats/scale_rule.h"
#include "ferry/detail/formats/source.h"
#include "ferry/token_format.h"

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
  static constexpr bool takes_input_scale() { return Scale::kTakesInputScale; }
  FERRY_HD static constexpr std::size_t payload_bytes(int hidden) { return packed_bytes<Element::kBits>(hidden); }

  template <ThreadGroup G>
  FERRY_HD int encode(const G& group, InputRow row, int hidden, float input_scale, std::byte* payload,
                      std::byte* scales) const {
    return with_source(row, [&](const auto& source) {
      if constexpr (G::kWidth == 1)
        return encode_by_one(source, hidden, input_scale, payload, scales);
      else
        return encode_together(group, source, hidden, input_scale, payload, scales);
    });
  }

  // What a thread encodes its kColumns columns of a block to.
  template <int kColumns>
  struct EncodedColumns {
    std::uint32_t words[kColumns * Element::kBits / 32];
    Stored scale;
    bool finite;
  };

  // Encodes a block whose columns are in kLanes neighbouring threads of the group; `values` are this thread's, as
  // float32 bits. All threads of the group call it. `exist` is false in a thread whose columns lie behind the row's
  // end.
  template <int kLanes, int kColumns, ThreadGroup G>
  FERRY_HD static EncodedColumns<kColumns> encode_columns(const G& group, const std::uint32_t (&values)[kColumns],
                                                          float input_scale, bool exist = true) {
    constexpr int kStrip = kColumns < kColumnsAtOnce ? kColumns : kColumnsAtOnce;
    static_assert(kColumns % kStrip == 0);
    const std::uint32_t largest = largest_magnitude(values);
    const std::uint32_t amax = group.template max_over<kLanes>(exist ? largest : 0u);
    EncodedColumns<kColumns> encoded;
    encoded.finite = amax < kInfinityBits;
    const BlockScale<Stored> scale = Scale::choose(encoded.finite ? amax : 0u, input_scale);
    encoded.scale = encoded.finite ? scale.stored : Scale::kNan;
    const std::uint32_t keep = all_ones_if(encoded.finite);
    constexpr int kWords = kWordsAtOnce<Element, kStrip>;
    for (int strip = 0; strip < kColumns / kStrip; ++strip) {
      std::uint32_t columns[kStrip];
      std::uint32_t words[kWords];
      for (int i = 0; i < kStrip; ++i) columns[i] = values[strip * kStrip + i];
      pack_columns<Element, Scale::kFits>(columns, amax, scale.multiplier, scale.moderate, words);
      for (int i = 0; i < kWords; ++i) encoded.words[strip * kWords + i] = words[i] & keep;
    }
    return encoded;
  }

  template <ThreadGroup G>
  FERRY_HD void decode(const G& group, const std::byte* payload, const std::byte* scales, int hidden, float input_scale,
                       float* out) const {
    constexpr int kPerThread = G::kWidth == 1 ? kBlock : 8;
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

  // Eight columns as they lie in memory: their codes, and the scale of their block.
  struct LoadedColumns {
    std::uint32_t words[kWordsOfEight<Element::kBits>];
    Stored scale;
  };
  // The eight columns from `column` on, a multiple of 8, which all exist.
  FERRY_HD static LoadedColumns load_columns(const std::byte* payload, const std::byte* scales, int column) {
    LoadedColumns loaded;
    load_words_of_eight<Element::kBits>(payload + packed_bytes<Element::kBits>(column), loaded.words);
    loaded.scale = reinterpret_cast<const Stored*>(scales)[column / kBlock];
    return loaded;
  }
  FERRY_HD static void decode_loaded(const LoadedColumns& loaded, float input_scale, float (&values)[8]) {
    decode_eight<Element>(loaded.words, values);
    Scale::with_decoder(loaded.scale, input_scale, [&](const auto& decoder) {
      for (float& value : values) value = decoder(value);
    });
  }
  // Formats that take an input scale: as decode_loaded where the input scale is moderate, but a zero may lose its sign,
  // which a sum does not see.
  FERRY_HD static auto divisor_of(float moderate_input_scale) requires(Scale::kTakesInputScale) {
    return Scale::divisor_of(moderate_input_scale);
  }
  template <class Divisor>
  FERRY_HD static void decode_addends(const LoadedColumns& loaded, const Divisor& divisor,
                                      float (&values)[8]) requires(Scale::kTakesInputScale) {
    static_assert(Element::kBias == 1);
    std::uint32_t codes[8];
    eight_of_words<Element::kBits>(loaded.words, codes);
    const float factor = Scale::low_factor(loaded.scale);
    for (int i = 0; i < 8; ++i) {
      const float low = low_value_of_top<Element>(codes[i] << (32 - Element::kBits));
      values[i] = Scale::divide(multiply_rounded(low, factor), divisor);
    }
  }
  // load_columns and decode_loaded at once.
  FERRY_HD static void decode_columns(const std::byte* payload, const std::byte* scales, int column, float input_scale,
                                      float (&values)[8]) {
    decode_loaded(load_columns(payload, scales, column), input_scale, values);
  }

 private:
  // The result is above kInfinityBits where a value is a NaN. GPUs compare two magnitudes in one instruction, and take
  // the largest of three integers in one; hence pairs, then threes.
  template <int kColumns>
  FERRY_HD static std::uint32_t largest_magnitude(const std::uint32_t (&values)[kColumns]) {
    static_assert(kColumns % 4 == 0);
    std::uint32_t largest = 0;
    for (int i = 0; i < kColumns; i += 4) {
      const std::uint32_t two = larger_magnitude(values[i], values[i + 1]);
      largest = larger(larger(largest, two), larger_magnitude(values[i + 2], values[i + 3]));
    }
    return largest;
  }

  // How a group of this kind shares the columns of a block.
  template <class G>
  struct Parts {
    static constexpr int kLanes = G::kWidth < kBlock / kColumnsAtOnce ? G::kWidth : kBlock / kColumnsAtOnce;
    static constexpr int kPerThread = kBlock / kLanes;
    // A single thread takes several blocks at a time, so that a compiler vectorises the work on their scales.
    static constexpr int kStrip = G::kWidth > 1 || kBlock > 128 ? 1 : 256 / kBlock;
    static_assert(kBlock % kLanes == 0 && kPerThread % kColumnsAtOnce == 0,
                  "a block is shared by a power of two of threads, 16 columns or more each");
  };

  FERRY_HD static constexpr int columns_of(int column, int hidden, int most) {
    const int left = hidden - column;
    return left < 0 ? 0 : left < most ? left : most;
  }

  template <class Source>
  FERRY_HD static int encode_by_one(const Source& source, int hidden, float input_scale, std::byte* payload,
                                    std::byte* scales) {
    constexpr int kStrip = Parts<SerialGroup>::kStrip;
    int non_finite = 0;
    int column = 0;
    if constexpr (kStrip > 1) {
      for (; column <= hidden - kStrip * kBlock; column += kStrip * kBlock)
        non_finite += encode_blocks<kStrip>(source, column, kStrip * kBlock, input_scale, payload, scales);
    }
    for (; column < hidden; column += kBlock)
      non_finite += encode_blocks<1>(source, column, columns_of(column, hidden, kBlock), input_scale, payload, scales);
    return non_finite;
  }

  // Encodes kBlocks blocks that begin at `column`; the last block of a row may be short. Returns how many are not
  // finite.
  template <int kBlocks, class Source>
  FERRY_HD static int encode_blocks(const Source& source, int column, int count, float input_scale, std::byte* payload,
                                    std::byte* scales) {
    std::uint32_t values[kBlocks * kBlock];
    source.template load<kBlocks * kBlock>(column, count, values);
    std::uint32_t amax[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      std::uint32_t largest = 0;
      for (int i = 0; i < kBlock; ++i) largest = larger(largest, values[b * kBlock + i] & kMagnitudeMask);
      amax[b] = largest;
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

    std::uint32_t codes[kBlocks * kBlock];
    for (int b = 0; b < kBlocks; ++b)
      for (int i = 0; i < kBlock; ++i)
        codes[b * kBlock + i] = Element::encode(values[b * kBlock + i], multiplier[b]) & keep[b];
    std::byte* const out = payload + packed_bytes<Element::kBits>(column);
    if (count == kBlocks * kBlock)
      store_many<Element::kBits>(codes, kBlocks * kBlock, out);
    else
      store_many<Element::kBits>(codes, count, out);

    int non_finite = 0;
    for (int b = 0; b < kBlocks; ++b) {
      reinterpret_cast<Stored*>(scales)[column / kBlock + b] = stored[b];
      non_finite += keep[b] == 0 ? 1 : 0;
    }
    return non_finite;
  }

  // Each thread loads its next columns before it encodes the present ones.
  template <class G, class Source>
  FERRY_HD static int encode_together(const G& group, const Source& source, int hidden, float input_scale,
                                      std::byte* payload, std::byte* scales) {
    constexpr int kLanes = Parts<G>::kLanes;
    constexpr int kColumns = Parts<G>::kPerThread;
    const int stride = group.size() / kLanes * kBlock;
    const bool keeps_scale = group.thread() % kLanes == 0;
    int non_finite = 0;
    int column = group.thread() / kLanes * kBlock + group.thread() % kLanes * kColumns;
    auto next = source.template fetch<kColumns>(column, columns_of(column, hidden, kColumns));
    // All threads of the group make the same number of steps, since max_over needs all of them.
    for (int first = 0; first < hidden; first += stride, column += stride) {
      std::uint32_t values[kColumns];
      source.expand(next, values);
      const int count = columns_of(column, hidden, kColumns);
      next = source.template fetch<kColumns>(column + stride, columns_of(column + stride, hidden, kColumns));
      const EncodedColumns<kColumns> encoded = encode_columns<kLanes, kColumns>(group, values, input_scale);
      store_columns<kColumns>(encoded.words, count, payload + packed_bytes<Element::kBits>(column));
      if (count == 0 || !keeps_scale) continue;
      reinterpret_cast<Stored*>(scales)[column / kBlock] = encoded.scale;
      non_finite += encoded.finite ? 0 : 1;
    }
    return non_finite;
  }

  // The first `count` columns, none or a multiple of 16.
  template <int kColumns>
  FERRY_HD static void store_columns(const std::uint32_t (&words)[kColumns * Element::kBits / 32], int count,
                                     std::byte* out) {
    constexpr int kWords = kWordsAtOnce<Element>;
    for (int strip = 0; strip < kColumns / kColumnsAtOnce; ++strip)
      if (strip * kColumnsAtOnce < count) store_words<kWords>(words + strip * kWords, out + strip * kWords * 4);
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
