// Curves drawn with characters: braille dots, or stars where only ASCII can be shown.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::output {

struct Point {
  double x = 0;
  double y = 0;
};

struct PlotOptions {
  // The size of the plot with its axes, in columns and lines (without the title and the x axis).
  int width = 72;
  int height = 12;
  bool unicode = false;
  std::string x_label = "step";
};

// A title line, the curve with an axis of y values at its left, and an axis of x values below.
// Points come in ascending x. What is not finite cannot be drawn; the title says how many there
// are. Long series are drawn as the range of each column, so no spike is lost.
std::string RenderPlot(absl::string_view title, const std::vector<Point>& points,
                       const PlotOptions& options);

}  // namespace trainyard::output
