// .npy files: mapped for reading, with everything checked before a value is touched, and written so that they appear
// complete or not at all. C order and little endian only; other files are refused, never converted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ferry/tensor.h"
#include "tool/io/pending_file.h"

namespace ferry::app {

struct NpyHeader {
  DType dtype = DType::none;  // none: a dtype that no command takes
  std::string dtype_name;     // as numpy calls it: "float64"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
};

// Reads the header at the start of a file. Throws Error(io) where it is damaged or none, and Error(invalid_argument)
// where the array is big-endian or holds no numbers; the caller adds the name of the file.
NpyHeader parse_npy_header(std::string_view file);

class NpyFile {
 public:
  // `argument` is the option that gave the path. Checks the header and that the file holds exactly the data it
  // announces. Throws Error(io) where the file cannot be read as an array, and Error(invalid_argument) where the array
  // is of a kind that no command takes.
  NpyFile(const std::string& argument, const std::filesystem::path& path);
  ~NpyFile();
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&&) = delete;

  DType dtype() const { return header_.dtype; }
  const std::vector<std::int64_t>& shape() const { return header_.shape; }
  std::int64_t extent(std::size_t axis) const { return header_.shape.at(axis); }
  std::size_t data_bytes() const { return data_bytes_; }
  const std::string& name() const { return name_; }  // "--tokens x.npy", for messages
  ConstTensor tensor() const;
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

  // Each throws Error(invalid_argument) that gives the file's value and what it must be. In `expected` -1 stands for
  // any extent; `meaning` spells the axes out, such as "[tokens, hidden]".
  void require_dtype(std::initializer_list<DType> allowed) const;
  void require_shape(std::initializer_list<std::int64_t> expected, const char* meaning) const;

 private:
  void map(int file);

  std::string name_;
  NpyHeader header_;
  void* mapping_ = nullptr;
  std::size_t file_bytes_ = 0;
  std::size_t data_bytes_ = 0;
  const void* data_ = nullptr;
  std::unique_ptr<std::byte[]> aligned_;  // a copy of the data where the header leaves it misaligned
};

// "[3, 64]"
std::string shape_text(const std::vector<std::int64_t>& shape);
// "float32"
const char* numpy_name(DType dtype);

class NpyWriter {
 public:
  NpyWriter(std::string argument, const std::filesystem::path& path) : file_(std::move(argument), path) {}

  // Header first, then all the data in any number of pieces.
  void begin(DType dtype, const std::vector<std::int64_t>& shape);
  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  PendingFile file_;
  std::size_t left_ = 0;  // bytes announced and not yet written
};

}  // namespace ferry::app
