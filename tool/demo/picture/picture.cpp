// A regular file is renamed into its place; what is none is opened and written to.
#include "tool/demo/picture/picture.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ferry/error.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

bool is_device_or_pipe(const std::string& name) {
  struct stat status {};
  return stat(name.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

[[noreturn]] void fail(const std::string& name, int error) {
  throw Error(ErrorKind::io, fmt::format("--svg {}: cannot be written: {}", name, std::strerror(error)));
}

}  // namespace

bool Picture::is_standard_output(const std::string& name) {
  return name == "-" || name == "/dev/stdout" || name == "/dev/fd/1" || name == "/proc/self/fd/1";
}

Picture::Picture(const std::optional<std::string>& name) {
  if (!name) return;
  name_ = *name;
  prints_ = is_standard_output(name_);
  if (prints_) return;
  if (is_device_or_pipe(name_)) {
    stream_ = open(name_.c_str(), O_WRONLY | O_CLOEXEC);
    if (stream_ < 0) fail(name_, errno);
    return;
  }
  try {
    file_.emplace("--svg", name_);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}; --no-svg leaves the picture out", error.what()));
  }
}

Picture::~Picture() {
  if (stream_ >= 0) close(stream_);
}

void Picture::write(const std::string& drawing) {
  if (prints_) return print(drawing);
  if (stream_ >= 0) return write_stream(drawing);
  if (!file_) return;
  file_->write(drawing.data(), drawing.size());
  file_->commit();
}

void Picture::write_stream(const std::string& drawing) const {
  for (std::size_t done = 0; done < drawing.size();) {
    const ssize_t wrote = ::write(stream_, drawing.data() + done, drawing.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(name_, errno);
    done += static_cast<std::size_t>(wrote);
  }
}

}  // namespace ferry::app
