// The steps of an exchange with skip_a2a on CPUs: the world that the protocol sees is this rank alone, so its memory is
// its own, whatever the other ranks are reached by.
#pragma once

#include <memory>

#include "exchange/exchange_memory.h"
#include "exchange/exchange_steps.h"
#include "ferry/detail/layout/heap_map.h"

namespace ferry::cpu {

// `map` is that of skip_a2a, which has no remote ranks. `memory`: of other lone steps; null: new.
std::unique_ptr<ExchangeSteps> make_lone_steps(int rank, const Shape& shape, const ExchangeOptions& options,
                                               const HeapMap& map,
                                               const std::shared_ptr<ExchangeMemory>& memory = nullptr);

}  // namespace ferry::cpu
