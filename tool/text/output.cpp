#include "tool/text/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace ferry::app {

static bool& silent() {
  static bool is_silent = false;
  return is_silent;
}
static bool& quiet() {
  static bool is_quiet = false;
  return is_quiet;
}

bool prints() { return !silent(); }
void keep_silent() { silent() = true; }

bool is_quiet() { return quiet(); }
void be_quiet() { quiet() = true; }

bool is_for_people() {
  // Open MPI's launchers give every process a pty, wherever their own output goes.
  static const bool terminal = isatty(STDOUT_FILENO) == 1 && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr;
  return terminal;
}

std::size_t columns_of(int terminal) {
  std::size_t columns = 0;
  if (const char* text = std::getenv("COLUMNS"); text != nullptr)
    std::from_chars(text, text + std::string_view(text).size(), columns);
  if (winsize size{}; columns == 0 && ioctl(terminal, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kLineWidth : columns;
}

std::size_t line_width() {
  constexpr std::size_t kLeast = 60;
  return is_for_people() ? std::clamp(columns_of(STDOUT_FILENO), kLeast, kLineWidth) : kLineWidth;
}

// NO_COLOR: https://no-color.org asks for a value that is not empty.
bool shows_colours() {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  static const bool shows = is_for_people() && value_of("NO_COLOR").empty() && value_of("TERM") != "dumb";
  return shows;
}

}  // namespace ferry::app
