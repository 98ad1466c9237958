#include "tool/text/output.h"

namespace ferry::app {

static bool& silent() {
  static bool is_silent = false;
  return is_silent;
}

bool prints() { return !silent(); }
void keep_silent() { silent() = true; }

}  // namespace ferry::app
