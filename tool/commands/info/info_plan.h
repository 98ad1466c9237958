// What `ferry info` says of a shape: the memory that an exchange of it takes, on any backend, whatever this machine
// has.
#pragma once

#include <string>

#include "tool/commands/options/commands.h"
#include "tool/text/json.h"

namespace ferry::app {

bool asks_for_plan(const InfoArguments& asked);

struct InfoPlan {
  std::string text;
  Json report;  // an object with the keys that the plan adds
};
// Throws Error(invalid_argument) where the shape is impossible.
InfoPlan plan_of(const InfoArguments& asked);

// The models that --model takes.
InfoPlan list_of_models();

}  // namespace ferry::app
