// Where the file system allows it the unfinished file has no name at all, so that not even a killed process leaves one.
#include "tool/io/pending_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "ferry/error.h"

namespace ferry::app {
namespace {

constexpr mode_t kMode = 0666;  // less the umask, as for any new file

std::filesystem::path parent_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : ".";
}

// No longer than a file system allows (255 bytes) where the target's own name is not.
std::string temporary_name(const std::filesystem::path& target) {
  constexpr std::size_t kMostToShow = 200;
  std::string name = target.filename().string();
  if (name.size() > kMostToShow) name = fmt::format("{:016x}", std::hash<std::string>{}(name));
  return fmt::format(".{}.{}.part", name, getpid());
}

}  // namespace

PendingFile::PendingFile(std::string argument, const std::filesystem::path& target)
    : argument_(std::move(argument)), target_(target) {
  if (target_.filename().empty()) fail("is not the name of a file", 0);
  require_directory(parent_of(target_));
  struct stat status {};
  if (stat(target_.c_str(), &status) == 0) {  // of what a link leads to
    if (!S_ISREG(status.st_mode)) fail("exists and is not a regular file", 0);
    if (access(target_.c_str(), W_OK) != 0) fail("exists and cannot be written", errno);
  } else if (errno != ENOENT) {
    fail("cannot be written", errno);
  }
  std::error_code error;
  if (std::filesystem::is_symlink(target_, error)) follow_link();
  open_beside();
}

// The file appears where the link leads, and the link stays.
void PendingFile::follow_link() {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::weakly_canonical(target_, error);
  if (error) fail("cannot be written", error.value());
  target_ = file;
  require_directory(parent_of(target_));
}

void PendingFile::require_directory(const std::filesystem::path& parent) const {
  struct stat status {};
  if (stat(parent.c_str(), &status) != 0)
    fail(errno == ENOENT ? "its directory does not exist" : "its directory cannot be reached", errno);
  if (!S_ISDIR(status.st_mode)) fail("its directory does not exist", ENOTDIR);
}

void PendingFile::open_beside() {
  const std::filesystem::path parent = parent_of(target_);
  file_ = open(parent.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (file_ >= 0) return;
  if (errno == EACCES || errno == EROFS || errno == ENOSPC) fail("its directory cannot be written", errno);
  beside_ = parent / temporary_name(target_);
  file_ = open(beside_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, kMode);
  if (file_ >= 0) return;
  beside_.clear();
  fail("its directory cannot be written", errno);
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : argument_(std::move(other.argument_)),
      target_(std::move(other.target_)),
      beside_(std::exchange(other.beside_, {})),
      file_(std::exchange(other.file_, -1)) {}

PendingFile::~PendingFile() {
  if (file_ >= 0) close(file_);
  if (!beside_.empty()) unlink(beside_.c_str());
}

void PendingFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(file_, next, std::min<std::size_t>(bytes, std::size_t{1} << 30));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("cannot be written", errno);
    next += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
}

void PendingFile::commit() {
  if (beside_.empty()) {
    beside_ = parent_of(target_) / temporary_name(target_);
    unlink(beside_.c_str());
    const std::string link = fmt::format("/proc/self/fd/{}", file_);
    if (linkat(AT_FDCWD, link.c_str(), AT_FDCWD, beside_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      const int error = errno;
      beside_.clear();
      fail("cannot be named", error);
    }
  }
  if (close(std::exchange(file_, -1)) != 0) fail("cannot be written", errno);
  if (std::rename(beside_.c_str(), target_.c_str()) != 0) fail("cannot be replaced", errno);
  beside_.clear();
}

void PendingFile::fail(const char* what, int error) const {
  throw Error(ErrorKind::io, fmt::format("{} {}: {}{}{}", argument_, target_.string(), what, error == 0 ? "" : ": ",
                                         error == 0 ? "" : std::strerror(error)));
}

}  // namespace ferry::app
