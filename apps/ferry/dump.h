// `--dump DIR`: what each rank's dispatch wrote, as DIR/rank<r>/*.npy. All files appear together, when asked to.
#pragma once

#include <filesystem>
#include <mutex>
#include <vector>

#include "ferry/layer.h"
#include "ferry/npy.h"

namespace ferry::app {

class Dump {
 public:
  // Makes DIR where it is missing. Throws Error(io) where it cannot be written, and Error(invalid_argument) where it
  // holds ranks of an earlier, larger dump, which this one would not replace.
  Dump(const std::filesystem::path& folder, int ranks);
  ~Dump();  // takes DIR away again if it was made here and holds nothing

  // From any thread, once per rank. Sets padding rows of the payload to zero.
  void write(int rank, const RankRows& rows);
  void commit();

 private:
  void write_array(int rank, const char* name, DType dtype, const std::vector<std::int64_t>& shape, const void* data);
  void write_scales(int rank, const RankRows& rows);

  std::filesystem::path folder_;
  bool made_folder_ = false;
  std::mutex guard_;
  std::vector<NpyWriter> files_;
};

}  // namespace ferry::app
