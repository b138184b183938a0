// Writes the chart of a scaling report as SVG by hand, since it is only a few lines and some text.
#include "client/scaling/chart.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace trainyard::scaling {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 480;
constexpr double kLeft = 64;
constexpr double kRight = 24;
constexpr double kTop = 64;
constexpr double kBottom = 60;
constexpr const char* kMeasuredColor = "#1f6fb4";
constexpr const char* kPredictedColor = "#d1720a";
constexpr const char* kPublishedColor = "#7a4fa0";
constexpr const char* kIdealColor = "#8a8a8a";
constexpr const char* kWarningColor = "#b3261e";

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Both axes are logarithmic, so that the ideal is a straight line and few devices have as much room
// as many.
struct Axes {
  double devices_max = 2;
  double speed_up_min = 1;  // a power of two
  double speed_up_max = 2;

  double X(double devices) const {
    return kLeft + (kWidth - kLeft - kRight) * std::log(devices / kMin) /
                       std::log(devices_max * kMargin / kMin);
  }
  double Y(double speed_up) const {
    return kHeight - kBottom -
           (kHeight - kTop - kBottom) * std::log(speed_up / (kMin * speed_up_min)) /
               std::log(speed_up_max * kMargin / (kMin * speed_up_min));
  }
  double left() const { return X(kMin); }
  double right() const { return X(devices_max * kMargin); }
  double bottom() const { return Y(kMin * speed_up_min); }
  double top() const { return Y(speed_up_max * kMargin); }

 private:
  // These leave room around the outermost points.
  static constexpr double kMin = 0.85;
  static constexpr double kMargin = 1.2;
};

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                         y2, style);
}

std::string Text(double x, double y, const std::string& anchor, const std::string& text,
                 const std::string& style = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s%s>%s</text>\n", x, y,
                         anchor, style.empty() ? "" : " ", style, Escaped(text));
}

std::string Circle(double x, double y, const char* color) {
  return absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", x, y, color);
}

std::string Ring(double x, double y, const char* color) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#fff\" stroke=\"%s\" stroke-width=\"2\"/>\n",
      x, y, color);
}

std::string Diamond(double x, double y, const char* color) {
  return absl::StrFormat(
      "<path d=\"M%.1f %.1fl6.5 6.5l-6.5 6.5l-6.5 -6.5z\" fill=\"#fff\" stroke=\"%s\" "
      "stroke-width=\"2\"/>\n",
      x, y - 6.5, color);
}

std::string Polyline(const std::vector<std::pair<double, double>>& points,
                     const std::string& style) {
  std::string path;
  for (const auto& [x, y] : points) absl::StrAppendFormat(&path, "%.1f,%.1f ", x, y);
  if (!path.empty()) path.pop_back();
  return absl::StrCat("<polyline points=\"", path, "\" fill=\"none\" ", style, "/>\n");
}

std::string Stroke(const char* color, const char* more = "") {
  return absl::StrCat("stroke=\"", color, "\" stroke-width=\"2\"", more);
}

std::string Frame(const Axes& axes) {
  std::string out;
  for (double mark = 1; mark <= axes.devices_max; mark *= 2) {
    const double x = axes.X(mark);
    out += Line(x, axes.bottom(), x, axes.bottom() + 5, "stroke=\"#444\"");
    out += Text(x, axes.bottom() + 20, "middle", absl::StrCat(mark));
  }
  for (double mark = axes.speed_up_min; mark <= axes.speed_up_max; mark *= 2) {
    const double y = axes.Y(mark);
    out += Line(axes.left(), y, axes.right(), y, "stroke=\"#e6e6e6\"");
    out += Text(axes.left() - 10, y + 4, "end", absl::StrCat(mark, "x"));
  }
  out += Line(axes.left(), axes.bottom(), axes.right(), axes.bottom(), "stroke=\"#444\"");
  out += Line(axes.left(), axes.bottom(), axes.left(), axes.top(), "stroke=\"#444\"");
  out += Text((axes.left() + axes.right()) / 2, kHeight - 16, "middle", "devices");
  const double middle = (axes.top() + axes.bottom()) / 2;
  out += Text(18, middle, "middle", "speed-up",
              absl::StrFormat("transform=\"rotate(-90 18 %.1f)\"", middle));
  return out;
}

std::string Legend(const Axes& axes, bool is_predicted, bool is_published) {
  std::string out;
  const double x = kLeft + 16;
  double y = axes.top() + 12;
  const auto entry = [&](const std::string& mark, const std::string& text) {
    absl::StrAppend(&out, mark, Text(x + 36, y + 4, "start", text));
    y += 20;
  };
  entry(absl::StrCat(Line(x, y, x + 28, y, Stroke(kMeasuredColor)),
                     Circle(x + 14, y, kMeasuredColor)),
        "measured");
  if (is_predicted) {
    entry(absl::StrCat(Line(x, y, x + 28, y, Stroke(kPredictedColor, " stroke-dasharray=\"7 4\"")),
                       Ring(x + 14, y, kPredictedColor)),
          "predicted");
  }
  if (is_published) entry(Diamond(x + 14, y, kPublishedColor), "published");
  entry(Line(x, y, x + 28, y, Stroke(kIdealColor, " stroke-dasharray=\"2 4\"")), "ideal");
  return out;
}

// Writes the speed-up near its point: below it, or above it if the axis is too near.
std::string Label(const Axes& axes, double x, double y, double speed_up, const char* color) {
  const double at = y + 24 < axes.bottom() - 4 ? y + 24 : y - 12;
  return Text(x, at, "middle", absl::StrFormat("%.2fx", speed_up),
              absl::StrCat("fill=\"", color, "\" font-weight=\"bold\""));
}

std::string Predictions(const Report& report, const Axes& axes) {
  const auto one = report.PredictedSpeed(1);
  if (!one.has_value()) return "";
  std::vector<std::pair<double, double>> line;
  for (int devices = 1; devices <= axes.devices_max; ++devices) {
    const auto speed = report.PredictedSpeed(devices);
    if (speed.has_value()) line.emplace_back(axes.X(devices), axes.Y(*speed / *one));
  }
  std::string out = Polyline(line, Stroke(kPredictedColor, " stroke-dasharray=\"7 4\""));
  for (const int devices : report.Beyond()) {
    const auto speed = report.PredictedSpeed(devices);
    if (!speed.has_value()) continue;
    const double x = axes.X(devices);
    const double y = axes.Y(*speed / *one);
    absl::StrAppend(&out, Ring(x, y, kPredictedColor),
                    Label(axes, x, y, *speed / *one, kPredictedColor));
  }
  return out;
}

std::string Curves(const Report& report, const Axes& axes) {
  const double ideal = std::min(axes.devices_max, axes.speed_up_max);
  std::string out = Line(axes.X(1), axes.Y(1), axes.X(ideal), axes.Y(ideal),
                         Stroke(kIdealColor, " stroke-dasharray=\"2 4\""));
  out += Predictions(report, axes);
  std::vector<std::pair<double, double>> line;
  for (const Measurement& point : report.measured) {
    line.emplace_back(axes.X(point.devices), axes.Y(report.SpeedUp(point)));
  }
  out += Polyline(line, Stroke(kMeasuredColor));
  if (const Published* published = PublishedFor(report.model)) {
    for (const Published::Point& point : published->points) {
      out += Diamond(axes.X(point.devices), axes.Y(point.speed_up), kPublishedColor);
    }
  }
  for (const Measurement& point : report.measured) {
    const double x = axes.X(point.devices);
    const double y = axes.Y(report.SpeedUp(point));
    absl::StrAppend(&out, Circle(x, y, kMeasuredColor),
                    Label(axes, x, y, report.SpeedUp(point), kMeasuredColor));
  }
  return out;
}

// Returns axes on which everything has room.
Axes AxesFor(const Report& report) {
  Axes axes;
  const auto include = [&axes](double devices, double speed_up) {
    axes.devices_max = std::max(axes.devices_max, devices);
    axes.speed_up_max = std::max({axes.speed_up_max, speed_up, devices});
    while (speed_up > 0 && axes.speed_up_min > speed_up) axes.speed_up_min /= 2;
  };
  for (const Measurement& point : report.measured) include(point.devices, report.SpeedUp(point));
  if (const auto one = report.PredictedSpeed(1)) {
    for (const int devices : report.Beyond()) {
      if (const auto speed = report.PredictedSpeed(devices)) include(devices, *speed / *one);
    }
  }
  if (const Published* published = PublishedFor(report.model)) {
    for (const Published::Point& point : published->points) include(point.devices, point.speed_up);
  }
  return axes;
}

std::string Warnings(const Report& report) {
  std::string out;
  double y = kHeight - kBottom - 12;
  for (const std::string& warning : report.Warnings()) {
    // The text lies below all curves, on the right.
    out += Text(kWidth - kRight - 8, y, "end", warning,
                absl::StrCat("fill=\"", kWarningColor, "\" font-size=\"12\""));
    y -= 16;
  }
  return out;
}

}  // namespace

std::string ReportSvg(const Report& report) {
  const Axes axes = AxesFor(report);
  const std::string about =
      absl::StrCat(report.model, ", batch ", report.global_batch, ", ", report.replicas,
                   report.replicas == 1 ? " replica, " : " replicas, ",
                   report.is_bitwise ? "bitwise" : "statistical");
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                      "width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                      "font-size=\"13\" fill=\"#222\">\n",
                      kWidth, kHeight, kWidth, kHeight),
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      Text(kLeft, 28, "start", absl::StrCat(report.name, ": speed-up over devices"),
           "font-size=\"17\" font-weight=\"bold\""),
      Text(kLeft, 48, "start", about, "fill=\"#666\""), Frame(axes), Curves(report, axes),
      Legend(axes, report.costs().has_value(), PublishedFor(report.model) != nullptr),
      Warnings(report), "</svg>\n");
}

}  // namespace trainyard::scaling
