// What this process prints, and how: of a job of processes, the first alone prints.
#pragma once

namespace ferry::app {

bool prints();  // true until keep_silent()
void keep_silent();

bool is_quiet();  // false until be_quiet(): then nothing says how far a command is
void be_quiet();

bool is_for_people();  // standard output is a terminal
// Whether standard output takes colours: it is a terminal, and neither NO_COLOR nor TERM=dumb is set.
bool shows_colours();

}  // namespace ferry::app
