// The formats of the library as types. docs/formats.md has the bytes of each.
#pragma once

#include "ferry/detail/formats/bf16.h"
#include "ferry/detail/formats/block_format.h"

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
static_assert(TokenFormat<Fp8Block128>);
using Fp8Block128Ue8m0 = codec::BlockFormat<codec::Fp8Block128Ue8m0Spec>;
static_assert(TokenFormat<Fp8Block128Ue8m0>);
using Mxfp8 = codec::BlockFormat<codec::Mxfp8Spec>;
static_assert(TokenFormat<Mxfp8>);
using Mxfp6E2m3 = codec::BlockFormat<codec::Mxfp6E2m3Spec>;
static_assert(TokenFormat<Mxfp6E2m3>);
using Mxfp6E3m2 = codec::BlockFormat<codec::Mxfp6E3m2Spec>;
static_assert(TokenFormat<Mxfp6E3m2>);
using Mxfp4 = codec::BlockFormat<codec::Mxfp4Spec>;
static_assert(TokenFormat<Mxfp4>);
using Nvfp4 = codec::BlockFormat<codec::Nvfp4Spec>;
static_assert(TokenFormat<Nvfp4>);

}  // namespace ferry
