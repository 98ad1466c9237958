// What keeps a token format from being carried, whoever asks: an exchange, or SwiGLU.
#pragma once

#include <string>

#include "ferry/token_format.h"

namespace ferry {

// Empty where tokens can travel in the format, else the reason with its values. Scale tensors are u8 or f32, so a scale
// has 1 byte or 4.
inline std::string why_invalid(const AnyFormat& format) {
  if (!format.encodes()) return {};  // bytes_format has checked it
  const int bytes = format.scale_bytes();
  const std::string name = format.name();
  if (bytes != 0 && bytes != 1 && bytes != 4)
    return "scale_bytes of the format " + name + " is " + std::to_string(bytes) +
           "; it must be 1, 4, or 0 without scales";
  const bool has_scales = bytes != 0;
  if (format.block() < 0 || (format.block() != 0) != has_scales ||
      (format.scale_layout() != ScaleLayout::none) != has_scales)
    return "the format " + name + " has block " + std::to_string(format.block()) + ", scale_bytes " +
           std::to_string(bytes) + " and scale_layout " + to_string(format.scale_layout()) +
           "; with scales none of the three is 0 or none, and without scales all are";
  return {};
}

// Empty where the format encodes and decodes values, else the reason.
inline std::string why_without_values(const AnyFormat& format) {
  if (format.encodes()) return {};
  return std::string("the bytes of ") + format.name() +
         " are never looked at, so nothing encodes or decodes them; give a format of the library, or one of your own";
}

}  // namespace ferry
