// The library's formats: a type for each, and the one list of them. docs/formats.md has the bytes of each.
//
// A new format is a Spec, a type and an entry of Formats. Every table with an entry per format follows from Formats, in
// the library and in its tests. cmake/FerryFormats.cmake reads the list and makes a source per format and kernel of it.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ferry/detail/formats/bf16.h"
#include "ferry/detail/formats/block_format.h"
#include "ferry/detail/formats/float_formats.h"

namespace ferry {

namespace codec {

struct Fp8Block128Spec {
  static constexpr const char* kName = "fp8_block128";
  static constexpr int kBlock = 128;
  static constexpr ScaleLayout kLayout = ScaleLayout::transposed;
  static constexpr int kAlignment = 4;
  using Element = E4m3;
  using Scale = FloatScale;
};

struct Fp8Block128Ue8m0Spec {
  static constexpr const char* kName = "fp8_block128_ue8m0";
  static constexpr int kBlock = 128;
  static constexpr ScaleLayout kLayout = ScaleLayout::row_major;
  static constexpr int kAlignment = 1;
  using Element = E4m3;
  using Scale = CeilScale<kSmallestAmax>;
};

template <class ElementType, class ScaleType>
struct MxSpec {
  static constexpr int kBlock = 32;
  static constexpr ScaleLayout kLayout = ScaleLayout::row_major;
  static constexpr int kAlignment = 1;
  using Element = ElementType;
  using Scale = ScaleType;
};
struct Mxfp8Spec : MxSpec<E4m3, CeilScale<0>> {
  static constexpr const char* kName = "mxfp8";
};
struct Mxfp6E2m3Spec : MxSpec<E2m3, EvenScale<3, 2>> {
  static constexpr const char* kName = "mxfp6_e2m3";
};
struct Mxfp6E3m2Spec : MxSpec<E3m2, EvenScale<2, 4>> {
  static constexpr const char* kName = "mxfp6_e3m2";
};
struct Mxfp4Spec : MxSpec<E2m1, EvenScale<1, 2>> {
  static constexpr const char* kName = "mxfp4";
};

struct Nvfp4Spec {
  static constexpr const char* kName = "nvfp4";
  static constexpr int kBlock = 16;
  static constexpr ScaleLayout kLayout = ScaleLayout::tiled;
  static constexpr int kAlignment = 1;
  using Element = E2m1;
  using Scale = TwoLevelScale;
};

}  // namespace codec

using Fp8Block128 = codec::BlockFormat<codec::Fp8Block128Spec>;
using Fp8Block128Ue8m0 = codec::BlockFormat<codec::Fp8Block128Ue8m0Spec>;
using Mxfp8 = codec::BlockFormat<codec::Mxfp8Spec>;
using Mxfp6E2m3 = codec::BlockFormat<codec::Mxfp6E2m3Spec>;
using Mxfp6E3m2 = codec::BlockFormat<codec::Mxfp6E3m2Spec>;
using Mxfp4 = codec::BlockFormat<codec::Mxfp4Spec>;
using Nvfp4 = codec::BlockFormat<codec::Nvfp4Spec>;

// A format of the library says all that one may leave out.
template <class F>
concept ListedFormat = TokenFormat<F> && SaysInputScale<F>;

template <ListedFormat... Fs>
struct FormatList {
  static constexpr std::size_t kCount = sizeof...(Fs);
  template <class F>
  static constexpr bool kHas = (std::is_same_v<F, Fs> || ...);

  template <template <class...> class Other, class... More>
  using Into = Other<Fs..., More...>;

  // The entry of the format with this name in a table of the list, or null where there is no such format.
  template <class T>
  static constexpr const T* find(const std::array<T, kCount>& table, std::string_view name) {
    constexpr std::array<const char*, kCount> kNames{Fs::name()...};
    for (std::size_t i = 0; i < kCount; ++i)
      if (name == kNames[i]) return &table[i];
    return nullptr;
  }
  // make(std::type_identity<F>{}) of each format F, in the order of the list.
  template <class Make>
  static constexpr auto table(const Make& make) {
    return std::array{make(std::type_identity<Fs>{})...};
  }
  template <class Visit>
  static constexpr void for_each(const Visit& visit) {
    (visit(std::type_identity<Fs>{}), ...);
  }
};

using Formats = FormatList<Bf16, Fp8Block128, Fp8Block128Ue8m0, Mxfp8, Mxfp6E2m3, Mxfp6E3m2, Mxfp4, Nvfp4>;
// In which results may travel home.
using ResultFormats = Formats::Into<FormatList, F16, F32>;

inline constexpr std::array<const char*, Formats::kCount> kFormatNames =
    Formats::table([]<class F>(std::type_identity<F>) { return F::name(); });

// The entry of the format with this name in a table of Formats, or null where there is no such format.
template <class T>
constexpr const T* find_format(const std::array<T, Formats::kCount>& table, std::string_view name) {
  return Formats::find(table, name);
}

}  // namespace ferry
