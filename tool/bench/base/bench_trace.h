// `ferry bench --trace`: when a line has been measured, a few more of its rounds are recorded. No time of the line is
// theirs.
#pragma once

#include <optional>
#include <string>

#include "ferry/world.h"
#include "tool/io/pending_file.h"

namespace ferry::app {

class BenchTrace {
 public:
  static constexpr int kRounds = 4;

  // The file appears when it is written. In the first process of a job; the others have none. Throws Error(io).
  explicit BenchTrace(const std::string& path);

  // Of a line. One thread of this process calls it.
  void add(const std::string& events);
  // Collective over the ranks of `world`, which are processes: what all of them recorded.
  void add_of_all(World& world, const std::string& mine);
  void write();
  // Where the rounds went; empty where no line had any.
  std::string summary() const;

 private:
  std::optional<PendingFile> file_;
  std::string events_;
  int lines_ = 0;
};

}  // namespace ferry::app
