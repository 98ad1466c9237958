// Counts, sizes and times as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace ferry::app {

std::string human_count(std::int64_t count);                       // in groups of three digits: "12 345"
std::string counted(std::int64_t count, const std::string& what);  // "1 rank", "2 ranks"
std::string human_bytes(std::uint64_t bytes);                      // decimal units, as wires are sold: "1.5 MB"
std::string human_seconds(double seconds);                         // "1.5 ms"

}  // namespace ferry::app
