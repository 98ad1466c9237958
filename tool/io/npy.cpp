// Mapping of .npy files, the checks of their dtypes and shapes, and writing.
#include "tool/io/npy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ferry/error.h"

namespace ferry::app {
namespace {

// Closes a file descriptor; the mapping outlives it.
struct File {
  int descriptor;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
};

const char* descr_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return "|u1";
    case DType::i32:
      return "<i4";
    case DType::u32:
      return "<u4";
    case DType::i64:
      return "<i8";
    case DType::f16:
      return "<f2";
    case DType::f32:
      return "<f4";
    case DType::f64:
      return "<f8";
    case DType::none:
    case DType::bf16:
      break;
  }
  throw std::logic_error("numpy has no such dtype");
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

NpyFile::NpyFile(const std::string& argument, const std::filesystem::path& path)
    : name_(argument + " " + path.string()) {
  const File file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.descriptor < 0)
    throw Error(ErrorKind::io, fmt::format("{}: cannot be opened: {}", name_, std::strerror(errno)));
  map(file.descriptor);
  const char* start = static_cast<const char*>(mapping_);
  try {
    header_ = parse_npy_header({start, file_bytes_});
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", name_, error.what()));
  }
  if (header_.fortran_order)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{}: it is in Fortran order; save it in C order, as numpy.ascontiguousarray gives it", name_));
  if (header_.dtype == DType::none) return;  // require_dtype refuses it by name
  std::uint64_t bytes = size_of(header_.dtype);
  for (const std::int64_t extent : header_.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      throw Error(ErrorKind::io, fmt::format("{}: shape {} is too large", name_, shape_text(header_.shape)));
  const std::size_t held = file_bytes_ - header_.data_offset;
  if (held != bytes)
    throw Error(ErrorKind::io, fmt::format("{}: it is {}: shape {} of {} takes {} bytes, the file holds {}", name_,
                                           held < bytes ? "truncated" : "longer than its header says",
                                           shape_text(header_.shape), header_.dtype_name, bytes, held));
  data_bytes_ = bytes;
  data_ = start + header_.data_offset;
  if (header_.data_offset % size_of(header_.dtype) != 0) {
    aligned_ = std::make_unique<std::byte[]>(bytes);
    std::memcpy(aligned_.get(), data_, bytes);
    data_ = aligned_.get();
  }
}

void NpyFile::map(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0)
    throw Error(ErrorKind::io, fmt::format("{}: cannot be read: {}", name_, std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, fmt::format("{}: is not a regular file", name_));
  if (status.st_size == 0) throw Error(ErrorKind::io, fmt::format("{}: it is empty", name_));
  file_bytes_ = static_cast<std::size_t>(status.st_size);
  void* const mapping = mmap(nullptr, file_bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapping == MAP_FAILED)
    throw Error(ErrorKind::system,
                fmt::format("{}: {} bytes cannot be mapped: {}", name_, file_bytes_, std::strerror(errno)));
  mapping_ = mapping;
}

NpyFile::NpyFile(NpyFile&& other) noexcept
    : name_(std::move(other.name_)),
      header_(std::move(other.header_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      file_bytes_(other.file_bytes_),
      data_bytes_(other.data_bytes_),
      data_(other.data_),
      aligned_(std::move(other.aligned_)) {}

NpyFile::~NpyFile() {
  if (mapping_ != nullptr) munmap(mapping_, file_bytes_);
}

ConstTensor NpyFile::tensor() const {
  ConstTensor tensor;
  tensor.data = data_;
  tensor.dtype = header_.dtype;
  tensor.rank = static_cast<int>(header_.shape.size());
  if (tensor.rank > kMaxTensorRank) throw std::logic_error("require_shape comes first");
  std::int64_t stride = 1;
  for (std::size_t axis = header_.shape.size(); axis > 0; --axis) {
    tensor.shape[axis - 1] = header_.shape[axis - 1];
    tensor.strides[axis - 1] = stride;
    stride *= header_.shape[axis - 1];
  }
  return tensor;
}

void NpyFile::require_dtype(std::initializer_list<DType> allowed) const {
  std::string names;
  for (const DType dtype : allowed) {
    if (dtype == header_.dtype) return;
    names += fmt::format("{}{}", names.empty() ? "" : " or ", numpy_name(dtype));
  }
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: dtype is {}, must be {}; nothing is converted silently",
                                                       name_, header_.dtype_name, names));
}

void NpyFile::require_shape(std::initializer_list<std::int64_t> expected, const char* meaning) const {
  bool fits = expected.size() == header_.shape.size();
  std::size_t axis = 0;
  std::string wanted;
  for (const std::int64_t extent : expected) {
    fits = fits && (extent < 0 || extent == header_.shape[axis]);
    wanted += fmt::format("{}{}", axis == 0 ? "" : ", ", extent < 0 ? "any" : std::to_string(extent));
    ++axis;
  }
  if (!fits)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: shape is {}, must be {} = [{}]", name_, shape_text(header_.shape), meaning, wanted));
}

void NpyWriter::begin(DType dtype, const std::vector<std::int64_t>& shape) {
  constexpr std::size_t kAlignment = 64;  // of the data, so that it may be mapped
  constexpr std::size_t kPrefix = 10;
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr_of(dtype),
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  header.append(kAlignment - (kPrefix + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(header.size() & 0xFFu);
  prefix += static_cast<char>(header.size() >> 8);
  file_.write(prefix.data(), prefix.size());
  file_.write(header.data(), header.size());
  left_ = size_of(dtype);
  for (const std::int64_t extent : shape) left_ *= static_cast<std::size_t>(extent);
}

void NpyWriter::write(const void* data, std::size_t bytes) {
  if (bytes > left_) throw std::logic_error("more data than the npy header announces");
  file_.write(data, bytes);
  left_ -= bytes;
}

void NpyWriter::commit() {
  if (left_ != 0) throw std::logic_error("less data than the npy header announces");
  file_.commit();
}

}  // namespace ferry::app
