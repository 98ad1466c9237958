// Where the picture of the demo goes: a file, which appears when it is complete; standard output (-); a device or a
// pipe; or nowhere.
#pragma once

#include <optional>
#include <string>

#include "tool/io/pending_file.h"

namespace ferry::app {

class Picture {
 public:
  // `name` is the value of --svg; an empty optional: no picture. Throws Error(io) with the reason where it cannot be
  // written.
  explicit Picture(const std::optional<std::string>& name);
  ~Picture();
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;

  static bool is_standard_output(const std::string& name);
  void write(const std::string& drawing);

 private:
  void write_stream(const std::string& drawing) const;

  std::string name_;
  bool prints_ = false;
  int stream_ = -1;  // of a device or a pipe
  std::optional<PendingFile> file_;
};

}  // namespace ferry::app
