// Who measures a line of `ferry bench`: this process's threads, its GPUs, or the processes of a job together.
#pragma once

#include <memory>
#include <string>

#include "tool/bench/base/bench_case.h"
#include "tool/ranks/ranks.h"
#include "tool/text/json.h"

namespace ferry::app {

// Measures one line after the other, and says the results of a table, from another thread too while a line is measured.
class Measurer {
 public:
  virtual ~Measurer() = default;
  virtual Json measure(const BenchCase& bench) = 0;
  virtual std::string table() = 0;           // of the lines since the last table
  virtual std::string footnote() const = 0;  // what the columns of the last table mean
};

struct MeasureOptions {
  int ranks;  // where ranks are processes: how many there are
  int nodes;
  bool baseline;
  std::string command;  // goes into the records
};

class Measurers {
 public:
  // Where ranks are processes, joins them: collective.
  Measurers(const Backend& backend, const MeasureOptions& options);
  ~Measurers();
  Measurer& of(const BenchCase& bench);

 private:
  const Backend& backend_;
  const bool gpus_;
  const MeasureOptions options_;
  std::unique_ptr<Measurer> cpu_or_processes_;
  std::unique_ptr<Measurer> gpu_;  // measures the machine first, so only where a line needs it
  int gpu_ranks_ = 0;
};

}  // namespace ferry::app
