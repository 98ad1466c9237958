// `--dump DIR`: what each rank's dispatch wrote, as DIR/rank<r>/*.npy. All files appear together, when asked to.
#pragma once

#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tool/io/npy.h"
#include "tool/layer/layer.h"

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

class Dump {
 public:
  // Makes DIR where it is missing. Throws Error(io) where it cannot be written, and Error(invalid_argument) where it
  // holds ranks of an earlier, larger dump, which this one would not replace.
  Dump(const std::filesystem::path& folder, int ranks);
  ~Dump();  // takes DIR away again if it was made here and holds nothing

  // From any thread, once per rank.
  void write(int rank, const DumpedRank& rows);
  void commit();

 private:
  std::filesystem::path folder_;
  bool made_folder_ = false;
  std::mutex guard_;
  std::vector<NpyWriter> files_;
};

}  // namespace ferry::app
