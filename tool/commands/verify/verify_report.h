// What `ferry verify` prints: a line for each case when it is done, and the sums at the end, or when it is interrupted.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tool/commands/options/commands.h"
#include "tool/ranks/ranks.h"
#include "tool/text/table.h"

namespace ferry::app {

struct CaseOutcome {
  enum class Result { ok, skipped, failed } result;
  std::string detail;  // what it shows, or why it failed or was skipped
  double seconds;
  int skipped_rounds = 0;  // of a case that ran others
};

class VerifyReport {
 public:
  VerifyReport(const VerifyArguments& asked, std::span<const std::string> case_names);

  void expect(std::size_t backends);  // that will begin; before the first one does
  void begin(const Backend& backend);
  void start(const std::string& name);
  // Collective over the processes of a job, since the first one prints a line.
  void add(const std::string& name, const CaseOutcome& outcome);
  void finish();     // collective as add
  void interrupt();  // from another thread, in the middle of a case
  // "2 conformance cases failed on cpu"; empty where none did.
  std::string failure() const;

 private:
  struct Counts {
    const Backend* backend;
    int ok = 0, skipped = 0, failed = 0;
    int skipped_rounds = 0;
    std::map<std::string, int> why_skipped = {};  // reasons, and how many cases each skipped
  };
  bool prints_rows() const { return !asked_.json && !asked_.quiet; }
  Counts sum() const;
  std::string summary() const;
  static std::string summary_of_skipped(const Counts& counts);
  Json report() const;

  const VerifyArguments asked_;
  const std::size_t num_cases_;
  Table table_;
  std::size_t num_backends_ = 1;
  std::vector<Counts> counts_;  // a backend each
  std::string running_;
  std::timed_mutex guard_;
};

}  // namespace ferry::app
