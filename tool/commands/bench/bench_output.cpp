#include "tool/commands/bench/bench_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tool/commands/options/options.h"
#include "tool/ranks/job/job.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

// Whether a line will fit, as far as the system says it ahead; where not, errno says why. Nothing is written. A device
// refuses a write of no bytes as it would a line. Of a file some room is taken beyond its end, where lines will lie.
bool has_room(const std::string& name) {
  constexpr off_t kLine = 4096;  // and more
  struct stat status {};
  const int file = open(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return true;
  bool has = true;
  if (fstat(file, &status) == 0 && S_ISCHR(status.st_mode)) has = write(file, "", 0) == 0;
  if (S_ISREG(status.st_mode) && fallocate(file, FALLOC_FL_KEEP_SIZE, status.st_size, kLine) != 0)
    has = errno != ENOSPC && errno != EDQUOT;  // others: it cannot be said ahead
  const int why = errno;
  close(file);
  errno = why;
  return has;
}

}  // namespace

Records::Records(const BenchOptions& options) : json_(options.json), name_(options.output) {
  if (name_.empty() || !is_first_process()) return;
  std::error_code unknown;  // why the file cannot be opened is said below
  is_new_ = !std::filesystem::exists(name_, unknown) && !unknown;
  file_.open(name_, std::ios::app);
  if (!file_)
    throw Error(ErrorKind::io, fmt::format("--output {}: cannot be appended to: {}", name_, std::strerror(errno)));
  if (!has_room(name_)) give_file_up();
}

std::string Records::summary() const {
  if (json_ || !file_.is_open()) return {};
  return fmt::format("{} of JSON appended to {}\n", counted(added_, "line"), name_);
}

void Records::add(const Json& record) {
  in_first_process(kDefaultDeadline, [&] {
    const std::string line = record.dump() + "\n";
    if (json_) print(line);
    if (!file_.is_open()) return;
    if (!(file_ << line << std::flush)) return give_file_up();
    ++added_;
  });
}

// Right after what failed. A file that has no line yet, and was not there before, goes.
void Records::give_file_up() {
  why_failed_ = fmt::format("--output {}: cannot be written: {}", name_, std::strerror(errno));
  note(why_failed_ + "; what is measured is still printed");
  file_.close();
  std::error_code ignored;
  if (is_new_ && added_ == 0) std::filesystem::remove(name_, ignored);
}

void Records::require_written() const {
  if (!why_failed_.empty()) throw Error(ErrorKind::io, why_failed_);
}

BenchOutput::BenchOutput(const BenchOptions& options, std::int64_t lines)
    : json_(options.json), lines_(lines), records_(options) {}

void BenchOutput::begin_table(Measurer& measurer) {
  const std::lock_guard lock(guard_);
  measurer_ = &measurer;
}

void BenchOutput::add(const Json& record) {
  const std::lock_guard lock(guard_);
  records_.add(record);
  ++measured_;
}

void BenchOutput::keep_footnote() {
  if (const std::string next = measurer_->footnote(); std::ranges::find(footnotes_, next) == footnotes_.end())
    footnotes_.push_back(next);
}

void BenchOutput::end_table() {
  const std::lock_guard lock(guard_);
  if (!json_) {
    const std::string table = measurer_->table();
    in_first_process(kDefaultDeadline, [&] { print(table + "\n"); });
    keep_footnote();
  }
  measurer_ = nullptr;
}

std::string BenchOutput::end_text() const {
  return fmt::format("{}{}", fmt::join(footnotes_, "\n"), records_.summary());
}

void BenchOutput::finish() {
  const std::lock_guard lock(guard_);
  in_first_process(kDefaultDeadline, [&] {
    print(end_text());
    records_.require_written();
  });
}

void BenchOutput::interrupt() {
  constexpr std::chrono::seconds kPatience{1};  // with a reader that does not read
  const std::unique_lock lock(guard_, kPatience);
  if (!lock.owns_lock()) return;
  const std::string what = fmt::format("with {} of {} lines done", measured_, lines_);
  if (json_) return note("interrupted " + what);
  print_unended_table();
  print(fmt::format("{}Interrupted {}.\n", end_text(), what));
}

void BenchOutput::fail() {
  const std::lock_guard lock(guard_);
  if (json_ || measured_ == 0) return;
  print_unended_table();
  print(fmt::format("{}Failed with {} of {} lines done.\n", end_text(), measured_, lines_));
}

void BenchOutput::print_unended_table() {
  if (const std::string table = measurer_ == nullptr ? "" : measurer_->table(); !table.empty()) {
    print(table + "\n");
    keep_footnote();
  }
}

}  // namespace ferry::app
