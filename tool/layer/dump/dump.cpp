// Arrays are trimmed to the rows that exist: row_offsets[last] of them, or the tiles that they take.
#include "tool/layer/dump/dump.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "ferry/detail/layout/scale_layout.h"
#include "ferry/error.h"

namespace ferry::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScalesOffsets = "scales_offsets";  // the one array that not every format has

// The number in a folder name "rank<number>", -1 where it is no such name.
int rank_in(const std::string& name) {
  constexpr std::string_view kPrefix = "rank";
  int rank = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, rank);
  return parsed.ec == std::errc() && parsed.ptr == end ? rank : -1;
}

DumpedArray dumped(const char* name, DType dtype, std::vector<std::int64_t> shape, const void* data) {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {name, dtype, std::move(shape), {static_cast<const std::byte*>(data), bytes}};
}

// Each line of scales is a column of the matrix: only its first `count` entries are rows.
DumpedArray transposed_scales(const RankRows& rows, std::int64_t count) {
  const RowLayout& layout = *rows.layout;
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(layout.scale_dtype);
  const std::size_t stride = static_cast<std::size_t>(rows.row_capacity) * size_of(layout.scale_dtype);
  for (int line = 1; line < layout.scales_per_row; ++line)
    std::memmove(rows.scales + static_cast<std::size_t>(line) * bytes,
                 rows.scales + static_cast<std::size_t>(line) * stride, bytes);
  return dumped("scales", layout.scale_dtype, {layout.scales_per_row, count}, rows.scales);
}

std::int64_t num_scale_tiles(const RankRows& rows) {
  std::int64_t tiles = 0;
  for (std::size_t group = 0; group < rows.scales_offsets.size(); ++group) {
    const std::int64_t first = rows.row_offsets[group];
    const std::int64_t size = rows.row_offsets[group + 1] - first;
    const std::uint32_t block = static_cast<std::uint32_t>(first / kScaleTileRows) + rows.scales_offsets[group];
    if (size > 0) tiles = std::max(tiles, block + scale_blocks(size));
  }
  return tiles;
}

void add_scales(const RankRows& rows, std::int64_t count, DumpedRank& arrays) {
  const RowLayout& layout = *rows.layout;
  switch (layout.scale_layout) {
    case ScaleLayout::none:
      return arrays.push_back(dumped("scales", DType::u8, {count, 0}, nullptr));
    case ScaleLayout::row_major:
      return arrays.push_back(dumped("scales", layout.scale_dtype, {count, layout.scales_per_row}, rows.scales));
    case ScaleLayout::transposed:
      return arrays.push_back(transposed_scales(rows, count));
    case ScaleLayout::tiled:
      break;
  }
  std::vector<std::int64_t> shape = layout.scales_shape(rows.row_capacity);
  shape[0] = num_scale_tiles(rows);
  arrays.push_back(dumped(kScalesOffsets, DType::u32, {layout.groups}, rows.scales_offsets.data()));
  arrays.push_back(dumped("scales", layout.scale_dtype, std::move(shape), rows.scales));
}

}  // namespace

DumpedRank dumped_rows(const RankRows& rows) {
  const std::int64_t count = rows.row_offsets.back();
  const std::int64_t row_bytes = rows.layout->payload_row_bytes;
  const std::int64_t groups = rows.layout->groups;
  DumpedRank arrays;
  arrays.push_back(dumped("row_offsets", DType::u32, {groups + 1}, rows.row_offsets.data()));
  arrays.push_back(dumped("expert_ids", DType::i32, {groups}, rows.expert_ids.data()));
  arrays.push_back(dumped("src_info", DType::i32, {count, 2}, rows.src_info));
  arrays.push_back(dumped("payload", DType::u8, {count, row_bytes}, rows.payload));
  for (std::int64_t row = 0; row < count; ++row)
    if (rows.src_info[2 * row] < 0) std::memset(rows.payload + row * row_bytes, 0, static_cast<std::size_t>(row_bytes));
  add_scales(rows, count, arrays);
  return arrays;
}

// Another process may make, hold or take away the folder at any time: what is held here must be what has the name.
HeldFolder::HeldFolder(const fs::path& folder) : folder_(folder) {
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries && file_ < 0; ++tries) try_to_hold();
  if (file_ < 0) fail("others make it and take it away again and again");
}

void HeldFolder::try_to_hold() {
  made_.clear();
  if (mkdir(folder_.c_str(), 0777) == 0)
    made_.push_back(folder_);
  else if (errno != EEXIST)
    fail(fmt::format("cannot be made: {}", std::strerror(errno)));
  const int file = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return;
  if (file < 0 && errno == ENOTDIR) fail("exists and is not a directory");
  if (file < 0) fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {  // where there are no locks, it goes without
    close(file);
    fail("another ferry is writing its dump there; give another directory, or wait for it");
  }
  struct stat held {
  }, named{};
  if (fstat(file, &held) == 0 && stat(folder_.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
      held.st_dev == named.st_dev)
    file_ = file;
  else
    close(file);
}

HeldFolder::~HeldFolder() {
  drop_empty();
  if (file_ >= 0) close(file_);
}

void HeldFolder::drop_empty() const {
  for (auto made = made_.rbegin(); file_ >= 0 && made != made_.rend(); ++made) rmdir(made->c_str());
}

fs::path HeldFolder::folder_in_it(const std::string& name) {
  const fs::path inner = folder_ / name;
  if (mkdir(inner.c_str(), 0777) == 0)
    made_.push_back(inner);
  else if (errno != EEXIST)
    fail(fmt::format("{} cannot be made: {}", name, std::strerror(errno)));
  std::error_code error;
  if (!fs::is_directory(inner, error)) fail(fmt::format("{} is not a directory", name));
  return inner;
}

void HeldFolder::fail(const std::string& why) const {
  throw Error(ErrorKind::io, fmt::format("--dump {}: {}", folder_.string(), why));
}

Dump::Dump(const fs::path& folder, int ranks, std::string format_text)
    : held_(folder), format_text_(std::move(format_text)) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const int rank = rank_in(entry.path().filename().string());
    // What is empty was left by a process that was killed before its dump was complete.
    if (rank >= ranks && rmdir(entry.path().c_str()) != 0)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("--dump {}: holds {} of an earlier dump, this one has ranks 0 to {}; give another directory",
                      folder.string(), entry.path().filename().string(), ranks - 1));
  }
  for (int rank = 0; rank < ranks; ++rank) held_.folder_in_it(fmt::format("rank{}", rank));
}

void Dump::write(int rank, const DumpedRank& rows) {
  const fs::path folder = held_.folder() / fmt::format("rank{}", rank);
  if (std::ranges::find(rows, kScalesOffsets, &DumpedArray::name) == rows.end()) {
    const std::lock_guard lock(guard_);
    stale_.push_back(folder / fmt::format("{}.npy", kScalesOffsets));
  }
  for (const DumpedArray& array : rows) {
    NpyWriter file("--dump", folder / fmt::format("{}.npy", array.name));
    file.begin(array.dtype, array.shape);
    file.write(array.bytes.data(), array.bytes.size());
    const std::lock_guard lock(guard_);
    files_.push_back(std::move(file));
  }
  PendingFile text("--dump", folder / kFormatFile);
  text.write(format_text_.data(), format_text_.size());
  const std::lock_guard lock(guard_);
  texts_.push_back(std::move(text));
}

void Dump::commit() {
  for (NpyWriter& file : files_) file.commit();
  for (PendingFile& text : texts_) text.commit();
  files_.clear();
  texts_.clear();
  for (const fs::path& file : stale_)
    if (unlink(file.c_str()) != 0 && errno != ENOENT)
      throw Error(ErrorKind::io, fmt::format("--dump {}: is of an earlier dump and cannot be removed: {}",
                                             file.string(), std::strerror(errno)));
  stale_.clear();
}

}  // namespace ferry::app
