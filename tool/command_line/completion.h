// What a shell loads to complete the words of `ferry`, made from the table of options.
#pragma once

#include <string>

#include "tool/command_line/option_table.h"

namespace ferry::app {

std::string bash_completion(const CommandEntry& root);
std::string zsh_completion(const CommandEntry& root);

}  // namespace ferry::app
