// A heat map that explains itself: axes with round numbers, a label and a total for each line, and a legend.
#pragma once

#include <string>
#include <vector>

#include "tool/demo/picture/svg.h"

namespace ferry::app {

struct HeatMap {
  struct Group {
    std::string name;
    int lines;
  };
  std::string x_title;
  std::string cell_meaning;              // for the legend
  std::string total_title;               // over the totals
  std::string label_title;               // over the labels
  int column_width = 1;                  // what the x axis counts, for each column
  std::vector<Group> groups;             // of the lines, from above
  std::vector<std::string> line_names;   // left of each line
  std::vector<std::string> line_labels;  // right of each line
  std::vector<std::vector<int>> cells;   // [line][column]
};

// `map` has a line and a column at least.
Drawn draw_heat_map(const HeatMap& map, int top);

}  // namespace ferry::app
