// Draws curves with characters: braille dots, or stars if only ASCII can be shown.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/output/terminal.h"

namespace trainyard::output {

struct Point {
  double x = 0;
  double y = 0;
};

struct PlotOptions {
  // The size of the plot with its axes, in columns and lines, without the title and the x axis.
  int width = 72;
  int height = 12;
  bool unicode = false;
  std::string x_label = "step";
};

// One of several curves in a plot.
struct Curve {
  std::string label;
  std::vector<Point> points;
};

// Returns a title line, the curve with an axis of y values at its left, and an axis of x values
// below. Points come in ascending x. Values that are not finite cannot be drawn; the title says how
// many there are. If there are more points than columns, each column shows the range of its points,
// so no spike is lost.
std::string RenderPlot(absl::string_view title, const std::vector<Point>& points,
                       const PlotOptions& options);

// Draws several curves into one plot, with a legend below it. With colours, each curve has one;
// without, each is drawn with a letter of its own. A curve hides those before it where they cross.
std::string RenderCurves(absl::string_view title, const std::vector<Curve>& curves,
                         const PlotOptions& options, const Terminal& terminal);

}  // namespace trainyard::output
