// Paths with the options that gave them: what a command writes must be none of what it reads.
#pragma once

#include <string>
#include <vector>

namespace ferry::app {

struct NamedPath {
  std::string option;  // "--output"
  std::string path;    // empty: not given
};

// Throws Error(invalid_argument) where an output is also an input or an earlier output: by its name, by a link, or as
// another name of one file.
void require_distinct(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);
// Throws Error(invalid_argument) where a file of another option lies in a folder of the folder that the command writes
// to.
void require_outside(const NamedPath& folder, const std::vector<NamedPath>& others);

}  // namespace ferry::app
