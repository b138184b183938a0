// Draws curves into a grid of dots. A braille character holds 2 x 4 dots, so a small plot still
// shows a curve.
#include "client/output/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output/text.h"
#include "common/base/strings.h"

namespace trainyard::output {
namespace {

// A grid of dots: each cell has 2 x 4 with braille, and 1 x 1 without.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode)
      : columns_(columns),
        rows_(rows),
        dots_x_(unicode ? 2 : 1),
        dots_y_(unicode ? 4 : 1),
        unicode_(unicode),
        cells_(static_cast<size_t>(columns * rows), 0),
        owners_(cells_.size(), 0) {}

  // All dots that follow belong to this curve.
  void Begin(size_t curve) { curve_ = curve; }

  int width() const { return columns_ * dots_x_; }
  int height() const { return rows_ * dots_y_; }

  // Dot (0, 0) is at the top left.
  void Set(int x, int y) {
    // The bits of U+2800 by column and row of the dot.
    constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    const size_t cell = CellOf(y / dots_y_, x / dots_x_);
    cells_[cell] |= kBits[x % dots_x_][y % dots_y_];
    owners_[cell] = curve_;
  }

  // Draws a line from y0 to y1 in column x.
  void SetColumn(int x, int y0, int y1) {
    for (int y = std::min(y0, y1); y <= std::max(y0, y1); ++y) Set(x, y);
  }

  // `show` returns how a piece of a curve is shown.
  using Show = std::function<std::string(size_t curve, const std::string& piece)>;
  std::string Row(int row, const Show& show) const {
    std::string line;
    for (int column = 0; column < columns_; ++column) {
      const size_t cell = CellOf(row, column);
      const uint8_t bits = cells_[cell];
      if (bits == 0) {
        line += ' ';
      } else if (!unicode_) {
        line += show(owners_[cell], "*");
      } else {
        // Encodes U+2800 + bits in UTF-8.
        std::string piece = "\xe2";
        piece += static_cast<char>(0xa0 | (bits >> 6));
        piece += static_cast<char>(0x80 | (bits & 0x3f));
        line += show(owners_[cell], piece);
      }
    }
    return line;
  }

 private:
  size_t CellOf(int row, int column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }

  const int columns_, rows_, dots_x_, dots_y_;
  const bool unicode_;
  std::vector<uint8_t> cells_;
  std::vector<size_t> owners_;  // the last curve in each cell
  size_t curve_ = 0;
};

struct Range {
  double min = 0;
  double max = 0;
  double span() const { return max - min; }
};

// Returns a step of 1, 2 or 5 times a power of ten that cuts `span` into about `parts`.
double NiceStep(double span, int parts) {
  const double raw = span / parts;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// The y axis covers the points and ends at round numbers. A constant gets some space above and
// below.
Range RoundRange(Range range, int parts, double& step) {
  if (range.span() <= 0) {
    const double room = range.min == 0 ? 1 : std::abs(range.min) * 0.1;
    range = {range.min - room, range.max + room};
  }
  step = NiceStep(range.span(), parts);
  return {std::floor(range.min / step) * step, std::ceil(range.max / step) * step};
}

std::string TickText(double value, double step) {
  if (std::abs(value) < step * 1e-9) value = 0;
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 6);
  if (std::abs(value) >= 1e6 || step < 1e-6) return absl::StrFormat("%.3g", value);
  return absl::StrFormat("%.*f", decimals, value);
}

// Every column of dots from the first point to the last shows the range of its points, joined to
// its neighbours by straight lines.
void Draw(const std::vector<Point>& points, const Range& x_range, const Range& y_range,
          Canvas& canvas) {
  const auto to_x = [&](double x) {
    if (x_range.span() <= 0) return 0;
    return static_cast<int>(std::lround((x - x_range.min) / x_range.span() * (canvas.width() - 1)));
  };
  const auto to_y = [&](double y) {
    const double from_top = (y_range.max - y) / y_range.span();
    return std::clamp(static_cast<int>(std::lround(from_top * (canvas.height() - 1))), 0,
                      canvas.height() - 1);
  };
  int last_x = -1;
  int last_y = 0;
  for (const Point& point : points) {
    const int x = to_x(point.x);
    const int y = to_y(point.y);
    if (last_x < 0) {
      canvas.Set(x, y);
    } else {
      // Draws the line column by column, each from where the line enters it to where it leaves.
      int from = last_y;
      for (int column = last_x; column <= x; ++column) {
        const double part =
            x == last_x ? 1.0
                        : static_cast<double>(column - last_x) / static_cast<double>(x - last_x);
        const int to = last_y + static_cast<int>(std::lround(part * (y - last_y)));
        const int next = from + (to > from ? 1 : to < from ? -1 : 0);
        canvas.SetColumn(column, column == last_x ? from : next, to);
        from = to;
      }
    }
    last_x = x;
    last_y = y;
  }
}

// Returns the tick texts under the axis, the first at its left end and the last at its right end.
std::string XAxis(const Range& x_range, int columns, size_t margin, const PlotOptions& options) {
  const int ticks = std::clamp(columns / 14, 1, 6);
  std::string rule = options.unicode ? "└" : "+";
  std::string labels(static_cast<size_t>(columns) + 24, ' ');
  std::vector<bool> is_tick(static_cast<size_t>(columns), false);
  size_t used = 0;
  for (int i = 0; i <= ticks; ++i) {
    const double part = static_cast<double>(i) / ticks;
    const auto column = static_cast<size_t>(std::lround(part * (columns - 1)));
    const double value = x_range.min + part * x_range.span();
    const std::string text = FormatCount(std::llround(value));
    const size_t half = i == 0 ? 0 : i == ticks ? text.size() - 1 : text.size() / 2;
    const size_t start = column >= half ? column - half : 0;
    is_tick[column] = true;
    if (i > 0 && start < used + 1) continue;
    labels.replace(start, text.size(), text);
    used = start + text.size();
  }
  for (size_t i = 0; i < is_tick.size(); ++i) {
    rule += options.unicode ? (is_tick[i] ? "┴" : "─") : (is_tick[i] ? "+" : "-");
  }
  absl::StripTrailingAsciiWhitespace(&labels);
  const std::string indent(margin, ' ');
  return absl::StrCat(indent, rule, "\n", indent, " ", labels, "  ", options.x_label, "\n");
}

// Keeps the points that can be drawn.
std::vector<Point> FiniteOf(const std::vector<Point>& points) {
  std::vector<Point> finite;
  for (const Point& point : points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) finite.push_back(point);
  }
  return finite;
}

// Draws curves, of which at least one has a point that is finite, with axes around them.
std::string RenderAxes(const std::vector<std::vector<Point>>& curves, const PlotOptions& options,
                       const Canvas::Show& show) {
  std::vector<Point> all;
  for (const std::vector<Point>& points : curves) {
    all.insert(all.end(), points.begin(), points.end());
  }
  Range x_range = {all.front().x, all.front().x};
  Range y_range = {all.front().y, all.front().y};
  for (const Point& point : all) {
    x_range = {std::min(x_range.min, point.x), std::max(x_range.max, point.x)};
    y_range = {std::min(y_range.min, point.y), std::max(y_range.max, point.y)};
  }
  double step = 1;
  const int rows = std::max(options.height, 3);
  y_range = RoundRange(y_range, std::max(rows / 3, 2), step);

  // The rows that have a tick, and their texts.
  std::vector<std::string> ticks(static_cast<size_t>(rows));
  size_t tick_width = 0;
  const auto count = static_cast<int>(std::lround(y_range.span() / step));
  for (int i = 0; i <= count; ++i) {
    const double part = static_cast<double>(i) / count;
    const auto row = static_cast<size_t>(std::lround((1 - part) * (rows - 1)));
    ticks[row] = TickText(y_range.min + i * step, step);
    tick_width = std::max(tick_width, ticks[row].size());
  }
  const size_t margin = tick_width + 1;
  const int columns = std::max(options.width - static_cast<int>(margin) - 1, 16);
  Canvas canvas(columns, rows, options.unicode);
  for (size_t i = 0; i < curves.size(); ++i) {
    canvas.Begin(i);
    Draw(curves[i], x_range, y_range, canvas);
  }
  std::string out;
  for (int row = 0; row < rows; ++row) {
    const std::string& tick = ticks[static_cast<size_t>(row)];
    const char* axis = options.unicode ? (tick.empty() ? "│" : "┤") : (tick.empty() ? "|" : "+");
    std::string line = absl::StrCat(std::string(tick_width - tick.size(), ' '), tick, " ", axis,
                                    canvas.Row(row, show));
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&out, line, "\n");
  }
  return out + XAxis(x_range, columns, margin, options);
}

}  // namespace

std::string RenderPlot(absl::string_view title, const std::vector<Point>& points,
                       const PlotOptions& options) {
  const std::vector<Point> finite = FiniteOf(points);
  std::string out(title);
  const size_t left_out = points.size() - finite.size();
  if (left_out > 0) {
    absl::StrAppend(&out, " (", left_out, left_out == 1 ? " point is" : " points are",
                    " not finite and not drawn)");
  }
  if (finite.empty()) return absl::StrCat(out, ": no points\n");
  const auto as_it_is = [](size_t, const std::string& piece) { return piece; };
  return absl::StrCat(out, "\n", RenderAxes({finite}, options, as_it_is));
}

std::string RenderCurves(absl::string_view title, const std::vector<Curve>& curves,
                         const PlotOptions& options, const Terminal& terminal) {
  constexpr absl::string_view kStyles[] = {"34", "33", "32", "35", "36", "31", "94", "93",
                                           "92", "95", "96", "91", "1",  "2",  "4",  "37"};
  constexpr absl::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  std::vector<std::vector<Point>> finite;
  bool has_points = false;
  for (const Curve& curve : curves) {
    finite.push_back(FiniteOf(curve.points));
    has_points = has_points || !finite.back().empty();
  }
  if (!has_points) return absl::StrCat(title, ": no points\n");
  // Dots without colours look the same for all curves.
  PlotOptions chosen = options;
  chosen.unicode = options.unicode && terminal.color;
  const auto show = [&](size_t curve, const std::string& piece) {
    return terminal.color ? terminal.Style(kStyles[curve % std::size(kStyles)], piece)
                          : std::string(kLetters.substr(curve % kLetters.size(), 1));
  };
  std::string out = absl::StrCat(title, "\n", RenderAxes(finite, chosen, show));
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string sign = show(i, chosen.unicode ? "━━" : "--");
    absl::StrAppend(&out, "  ", sign, " ", curves[i].label, "\n");
  }
  return out;
}

}  // namespace trainyard::output
