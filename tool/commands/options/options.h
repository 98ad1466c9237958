// What the values of options that several commands share mean, and which are refused.
#pragma once

#include <string>
#include <vector>

#include "ferry/exchange.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

// What --combine may be, and what --reduction may be: of every combine of an exchange, or either.
std::vector<std::string> combine_names();
std::vector<std::string> reduction_names();
struct Reductions {
  Reduction of_exchange = Reduction::by_rank;
  Reduction of_combine = Reduction::by_rank;

  bool choose() const { return of_exchange == Reduction::either; }  // combines say which they are
};
// What --reduction and --combine name; either may be empty, and follows from the other. Throws Error(invalid_argument)
// where an exchange of that reduction has no such combine.
Reductions reductions_named(const std::string& reduction, const std::string& combine);
// What --result-format may be.
std::vector<std::string> result_format_names();
std::string result_format_help();
// What --rows may be, and what it means.
std::vector<std::string> row_order_names(RowOrders orders);
RowOrder row_order_named(const std::string& name);
// The formats that --format names, in its order; all of them if "all" is a name. Throws Error(invalid_argument).
std::vector<AnyFormat> formats_named(const std::vector<std::string>& names);
// Notes an --input-scale that the format does not take.
void note_unused_input_scale(float input_scale, const AnyFormat& format);
// A line on standard error: what was asked for is done, but some of it has no effect. Of a job the first process alone
// says it.
void note(const std::string& text);
// Notes a --share-gpus that has no effect, since --backend auto took ranks that are no GPUs.
void note_unused_share_gpus(const Backend& backend);
// Notes that a launcher started several processes and each runs the whole command, since the ranks are all its own.
void note_repeated(const Backend& backend);

}  // namespace ferry::app
