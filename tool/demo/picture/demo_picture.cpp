// A heat map over the traffic that follows from it.
#include "tool/demo/picture/demo_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "tool/demo/picture/heat_map.h"

namespace ferry::app {
namespace {

constexpr int kPageMargin = 24;

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

// Experts of the ranks from above, the text from left to right.
HeatMap routing_map(const DemoModel& model, int ranks) {
  constexpr double kMostColumns = 52;
  const Layer& layer = model.layer();
  HeatMap map;
  map.column_width =
      static_cast<int>(round_number(static_cast<double>(layer.tokens) / kMostColumns, {1, 2, 3, 4, 5, 6, 8}));
  const std::int64_t columns = (layer.tokens + map.column_width - 1) / map.column_width;
  map.x_title = fmt::format("position in the text (token number; a column is {} token{})", map.column_width,
                            map.column_width == 1 ? "" : "s");
  map.cell_meaning = "tokens that a column sends to an expert";
  map.total_title = "tokens in all";
  map.label_title = "words it gets more than others do";
  const Shape shape{ranks, layer.experts, layer.top_k, 1, layer.hidden};
  for (int rank = 0; rank < ranks; ++rank)
    map.groups.push_back({fmt::format("rank {}", rank), num_local_experts(shape, rank)});
  map.cells.assign(static_cast<std::size_t>(layer.experts), std::vector<int>(static_cast<std::size_t>(columns)));
  for (std::int64_t token = 0; token < layer.tokens; ++token)
    for (int k = 0; k < layer.top_k; ++k)
      ++map.cells[static_cast<std::size_t>(layer.id(token, k))][static_cast<std::size_t>(token / map.column_width)];
  for (int expert = 0; expert < layer.experts; ++expert) {
    map.line_names.push_back(fmt::format("expert {}", expert));
    map.line_labels.push_back(joined(model.words_of_expert(expert, 4)));
  }
  return map;
}

}  // namespace

std::string demo_picture(const DemoModel& model, const std::string& source, const ChoiceTraffic& traffic) {
  const Layer& layer = model.layer();
  const std::string title = "Which expert gets which words: " + source;
  std::string shapes = svg_text(kPageMargin, 38, title, {.size = 20, .colour = Colour::ink, .bold = true});
  shapes +=
      svg_text(kPageMargin, 60,
               fmt::format("{} tokens, top-{} of {} experts on {} rank{}. Ferry carries each token once to every "
                           "rank that owns one of its experts.",
                           layer.tokens, layer.top_k, layer.experts, traffic.ranks, traffic.ranks == 1 ? "" : "s"),
               {.size = 13});
  const Drawn map = draw_heat_map(routing_map(model, traffic.ranks), 80);
  const Drawn below = draw_traffic(traffic, map.bottom + 36);
  return svg_document(title, std::max(map.right, below.right) + kPageMargin, below.bottom + kPageMargin,
                      shapes + map.shapes + below.shapes);
}

}  // namespace ferry::app
