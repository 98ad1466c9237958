// A heat map as an SVG that explains itself: title, axes, a label and a total for each line, and a legend. Its colours
// follow the viewer's light or dark scheme.
#pragma once

#include <string>
#include <vector>

namespace ferry::app {

struct HeatMap {
  std::string title;
  std::string subtitle;
  std::string x_title;
  std::string cell_meaning;              // for the legend
  std::string total_title;               // over the totals
  std::string label_title;               // over the labels
  std::vector<std::string> x_ticks;      // one for each column; empty where there is none
  std::vector<std::string> groups;       // of lines of the same number, such as ranks
  std::vector<std::string> line_names;   // left of each line
  std::vector<std::string> line_labels;  // right of each line
  std::vector<std::vector<int>> cells;   // [line][column]
};

std::string heat_map_svg(const HeatMap& map);

}  // namespace ferry::app
