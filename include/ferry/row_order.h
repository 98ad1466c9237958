// RowOrder: in which order a dispatch lays out the rows of a rank. docs/row-orders.md has a picture of each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace ferry {

enum class RowOrder : std::uint8_t {
  by_expert,  // local expert, source rank, token: compact, each expert at a multiple of expert_alignment
  by_source,  // one row for each token that names an expert of this rank: source rank, token
  padded,     // as by_expert, but expert e starts at row e * expert_stride, whatever came
  in_place,   // no row is copied: where the messages arrived, and the order of by_expert as an index into it
};
inline constexpr int kRowOrders = 4;
const char* to_string(RowOrder order);

// A set of orders.
class RowOrders {
 public:
  constexpr RowOrders() = default;
  constexpr RowOrders(std::initializer_list<RowOrder> orders) {
    for (const RowOrder order : orders) bits_ = static_cast<std::uint8_t>(bits_ | bit(order));
  }
  constexpr bool has(RowOrder order) const { return (bits_ & bit(order)) != 0; }
  constexpr bool is_empty() const { return bits_ == 0; }
  constexpr std::uint8_t bits() const { return bits_; }
  static constexpr RowOrders of_bits(std::uint8_t bits) {
    RowOrders orders;
    orders.bits_ = bits;
    return orders;
  }
  friend constexpr bool operator==(RowOrders, RowOrders) = default;

 private:
  static constexpr std::uint8_t bit(RowOrder order) {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(order));
  }
  std::uint8_t bits_ = 0;
};
// "by_expert, padded".
std::string to_string(RowOrders orders);

// What an exchange can do unless it is told otherwise. by_source is left out, as it changes what travels.
inline constexpr RowOrders kUsualRowOrders{RowOrder::by_expert, RowOrder::padded, RowOrder::in_place};

}  // namespace ferry
