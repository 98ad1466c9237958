// Contract: what all ranks of an exchange must agree on. Compared when it is made, so that a mismatch is an error that
// names both values and not a hang later.
#pragma once

#include <chrono>
#include <cstdint>

#include "ferry/exchange.h"

namespace ferry {

// Collective. Throws Error(invalid_argument) on every rank where two ranks differ. Where a rank refuses its own
// options, all throw in its words. `memory_of`: the number of the exchange whose memory it shares; 0: it has its own.
// Returns the exchange's number, which is larger than `newest` of every rank.
std::uint32_t require_same_contract(World& world, const Shape& shape, const ExchangeOptions& options,
                                    std::uint32_t newest, std::uint32_t memory_of = 0);
// By this a rank that refuses its own options takes part in that call, so that the others need not wait for it until
// their deadlines. It throws nothing, since the others may never come, and waits for them for the default deadline.
void tell_refusal(World& world, const ExchangeOptions& options, const Error& refusal) noexcept;

}  // namespace ferry
