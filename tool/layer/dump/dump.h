// `--dump DIR`: what each rank's dispatch wrote, as DIR/rank<r>/*.npy, and beside it in which format, as format.json.
// All files appear together, when asked to.
#pragma once

#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tool/io/npy.h"
#include "tool/io/pending_file.h"
#include "tool/layer/rows/rank_rows.h"

namespace ferry::app {

// One array of a rank's dump, trimmed to the rows that exist.
struct DumpedArray {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // of memory that others own
};
using DumpedRank = std::vector<DumpedArray>;

// What a rank's dispatch wrote: views of `rows`, whose padding rows become zero and whose scales move together.
DumpedRank dumped_rows(const RankRows& rows);

inline constexpr const char* kFormatFile = "format.json";

// A folder that one process at a time writes its files to, so that files of two never mix. It is made where it is
// missing.
class HeldFolder {
 public:
  // Throws Error(io) with the reason where it cannot be made, or where another process holds it.
  explicit HeldFolder(const std::filesystem::path& folder);
  ~HeldFolder();  // drop_empty()
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path folder_in_it(const std::string& name);  // made where it is missing
  void drop_empty() const;                                      // takes away each that was made here and holds no file

 private:
  [[noreturn]] void fail(const std::string& why) const;
  void try_to_hold();

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  // here: the folder, then those in it
  int file_ = -1;
};

class Dump {
 public:
  // Makes DIR where it is missing. Throws Error(io) where it cannot be written or another process writes a dump there,
  // and Error(invalid_argument) where it holds ranks of an earlier, larger dump, which this one would not replace.
  // `format_text` is what the file beside each rank's arrays says of their encoding.
  Dump(const std::filesystem::path& folder, int ranks, std::string format_text);

  // From any thread, once per rank.
  void write(int rank, const DumpedRank& rows);
  // All files appear, and an array that only an earlier dump had goes. Throws Error(io) where one cannot.
  void commit();
  // For a process that a signal ends: takes away the folders that were made here and hold no file. From any thread.
  void drop_empty() const { held_.drop_empty(); }

 private:
  HeldFolder held_;
  const std::string format_text_;
  std::mutex guard_;
  std::vector<NpyWriter> files_;
  std::vector<PendingFile> texts_;
  std::vector<std::filesystem::path> stale_;  // what an earlier dump may have left, and this one does not write
};

}  // namespace ferry::app
