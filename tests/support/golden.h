// Reads the reference vectors under tests/data/golden: numpy files of format version 1, little endian, C order.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace ferry::test {

struct GoldenArray {
  std::string descr;  // "<u2", "|u1", "<f4"
  std::vector<int> shape;
  std::vector<char> bytes;

  template <class T>
  std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

inline GoldenArray read_golden(const std::string& name) {
  std::ifstream file(std::string(FERRY_TEST_DATA) + "/golden/" + name + ".npy", std::ios::binary);
  const std::vector<char> all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (all.size() < 10 || std::memcmp(all.data(), "\x93NUMPY\x01", 7) != 0)
    throw std::runtime_error("no reference vector " + name);
  const std::size_t header_bytes = static_cast<unsigned char>(all[8]) + 256u * static_cast<unsigned char>(all[9]);
  const std::string header(all.data() + 10, header_bytes);
  GoldenArray array;
  const std::size_t descr = header.find("'descr': '") + 10;
  array.descr = header.substr(descr, header.find('\'', descr) - descr);
  std::size_t at = header.find("'shape': (") + 10;
  while (header[at] != ')') {
    array.shape.push_back(std::stoi(header.substr(at)));
    at = header.find_first_of(",)", at);
    while (header[at] == ',' || header[at] == ' ') ++at;
  }
  array.bytes.assign(all.begin() + 10 + static_cast<std::ptrdiff_t>(header_bytes), all.end());
  return array;
}

}  // namespace ferry::test
