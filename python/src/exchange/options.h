// PyOptions: ExchangeOptions as Python sets them, one attribute each, by the names of the C++ fields.
#pragma once

#include <ferry/exchange.h>

namespace ferry::python {

struct PyOptions {
  ExchangeOptions options;
};

}  // namespace ferry::python
