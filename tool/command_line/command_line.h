// The command line of `ferry`.
#pragma once

namespace ferry::app {

// Parses the arguments and runs the command that they name; or prints the help or the version, where that is asked for.
// Throws Error(invalid_argument) for what the parser refuses, and what the command throws.
void run_command_line(int argc, char** argv);

}  // namespace ferry::app
