// Draws curves into a grid of dots. A braille character holds 2 x 4 dots, so a small plot still
// shows a curve.
#include "client/output/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

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
        cells_(static_cast<size_t>(columns * rows), 0) {}

  int width() const { return columns_ * dots_x_; }
  int height() const { return rows_ * dots_y_; }

  // Dot (0, 0) is at the top left.
  void Set(int x, int y) {
    // The bits of U+2800 by column and row of the dot.
    constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    cells_[CellOf(y / dots_y_, x / dots_x_)] |= kBits[x % dots_x_][y % dots_y_];
  }

  // Draws a line from y0 to y1 in column x.
  void SetColumn(int x, int y0, int y1) {
    for (int y = std::min(y0, y1); y <= std::max(y0, y1); ++y) Set(x, y);
  }

  std::string Row(int row) const {
    std::string line;
    for (int column = 0; column < columns_; ++column) {
      const uint8_t bits = cells_[CellOf(row, column)];
      if (bits == 0) {
        line += ' ';
      } else if (!unicode_) {
        line += '*';
      } else {
        // Encodes U+2800 + bits in UTF-8.
        line += '\xe2';
        line += static_cast<char>(0xa0 | (bits >> 6));
        line += static_cast<char>(0x80 | (bits & 0x3f));
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

}  // namespace

std::string RenderPlot(absl::string_view title, const std::vector<Point>& points,
                       const PlotOptions& options) {
  std::vector<Point> finite;
  for (const Point& point : points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) finite.push_back(point);
  }
  std::string out(title);
  const size_t left_out = points.size() - finite.size();
  if (left_out > 0) {
    absl::StrAppend(&out, " (", left_out, left_out == 1 ? " point is" : " points are",
                    " not finite and not drawn)");
  }
  if (finite.empty()) return absl::StrCat(out, ": no points\n");
  Range x_range = {finite.front().x, finite.back().x};
  Range y_range = {finite.front().y, finite.front().y};
  for (const Point& point : finite) {
    y_range.min = std::min(y_range.min, point.y);
    y_range.max = std::max(y_range.max, point.y);
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
  Draw(finite, x_range, y_range, canvas);
  absl::StrAppend(&out, "\n");
  for (int row = 0; row < rows; ++row) {
    const std::string& tick = ticks[static_cast<size_t>(row)];
    const char* axis = options.unicode ? (tick.empty() ? "│" : "┤") : (tick.empty() ? "|" : "+");
    std::string line =
        absl::StrCat(std::string(tick_width - tick.size(), ' '), tick, " ", axis, canvas.Row(row));
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&out, line, "\n");
  }
  return out + XAxis(x_range, columns, margin, options);
}

}  // namespace trainyard::output
