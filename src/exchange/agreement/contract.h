// Contract: what all ranks of an exchange must agree on. Compared when it is made, so that a mismatch is an error that
// names both values and not a hang later.
#pragma once

#include <chrono>
#include <cstdint>

#include "ferry/exchange.h"

namespace ferry {

// Collective. Throws Error(invalid_argument) on every rank where two ranks differ, and where some rank refuses its own
// options that rank's words. Returns the exchange's number, which is larger than `newest` of every rank.
std::uint32_t require_same_contract(World& world, const Shape& shape, const ExchangeOptions& options,
                                    std::uint32_t newest);
// The part of a rank that refuses them in that call: the others need not wait for it until their deadlines. They may
// never come, so it throws nothing, and waits for them as long as by default.
void tell_refusal(World& world, const ExchangeOptions& options, const Error& refusal) noexcept;

}  // namespace ferry
