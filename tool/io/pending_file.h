// A file that appears under its name only when it is complete: it is written beside its place and renamed into it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ferry::app {

class PendingFile {
 public:
  // `argument` names the option in messages, such as "--output". Nothing is visible yet. Throws Error(io) with
  // the reason when the parent does not exist or cannot be written, or when something other than a file has that name.
  PendingFile(std::string argument, const std::filesystem::path& target);
  ~PendingFile();
  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;

  void write(const void* data, std::size_t bytes);
  void commit();  // the file appears, replacing one of that name
  const std::filesystem::path& target() const { return target_; }
  const std::string& argument() const { return argument_; }

 private:
  [[noreturn]] void fail(const char* what, int error) const;  // with the reason that `error`, an errno, gives
  void require_directory(const std::filesystem::path& parent) const;
  void follow_link();
  void open_beside();

  std::string argument_;
  std::filesystem::path target_;
  std::filesystem::path beside_;  // the temporary name; empty while the file has none
  int file_ = -1;
};

}  // namespace ferry::app
