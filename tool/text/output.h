// What this process prints, and how: of a job of processes, only the first prints.
#pragma once

#include <cstddef>

namespace ferry::app {

bool prints();  // true until keep_silent()
void keep_silent();

bool is_quiet();  // false until be_quiet(): then nothing says how far a command is
void be_quiet();

bool is_for_people();                           // standard output is a terminal, and no launcher made it
inline constexpr std::size_t kLineWidth = 120;  // most characters of a line that is printed for people
// The columns of a terminal, given by its file: as COLUMNS says, or the terminal itself; kLineWidth if neither does.
std::size_t columns_of(int terminal);
// kLineWidth, or less where standard output is a narrower terminal; no less than 60.
std::size_t line_width();
// Whether standard output takes colours: it is a terminal, and neither NO_COLOR nor TERM=dumb is set.
bool shows_colours();

}  // namespace ferry::app
