// The picture of the demo: which experts get which words, and what ranks send each other for it.
#pragma once

#include <string>

#include "tool/demo/model/demo_model.h"
#include "tool/demo/picture/traffic.h"

namespace ferry::app {

// An SVG. `source` names the text.
std::string demo_picture(const DemoModel& model, const std::string& source, const ChoiceTraffic& traffic);

}  // namespace ferry::app
