// What `ferry bench` prints: records as they come, a table when its lines are measured, and what was measured so far
// when it is interrupted or a line fails.
#pragma once

#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "tool/bench/bench_measurers.h"
#include "tool/commands/bench/bench_command.h"
#include "tool/text/json.h"

namespace ferry::app {

// Records on standard output with --json, and at the end of the file of --output.
class Records {
 public:
  explicit Records(const BenchOptions& options);  // throws Error(io)

  // Where the lines went; empty where that was said by the lines themselves, or where there is no file.
  std::string summary() const;
  // Collective over the processes of a job: the others wait for as long as the first one's reader takes. A file that
  // cannot be written, which is said at once, does not end what is measured: require_written() throws then.
  void add(const Json& record);
  void require_written() const;  // throws Error(io)

 private:
  void give_file_up();

  bool json_;
  std::string name_;
  std::ofstream file_;
  bool is_new_ = false;
  std::string why_failed_;
  int added_ = 0;
};

// Prints lines that are measured, or simulated. One thread measures and calls all but interrupt(). The calls that print
// are collective over the processes of a job, but where it says that they are not.
class BenchOutput {
 public:
  BenchOutput(const BenchOptions& options, std::int64_t lines);  // throws Error(io)

  void begin_table(Measurer& measurer);  // which lives until end_table()
  void add(const Json& record);          // of a line of it
  void end_table();
  void finish();
  void interrupt();  // from another thread, while a line is measured; not collective
  void fail();       // a line has failed: what the lines before it gave, if any; not collective

 private:
  void print_unended_table();
  void keep_footnote();
  std::string end_text() const;

  const bool json_;
  const std::int64_t lines_;
  std::timed_mutex guard_;
  Records records_;
  Measurer* measurer_ = nullptr;
  std::int64_t measured_ = 0;
  std::vector<std::string> footnotes_;
};

}  // namespace ferry::app
