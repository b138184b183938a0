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

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Both axes run from 0 to `most`, so that the ideal is the diagonal.
struct Axes {
  double most = 1;
  double X(double devices) const { return kLeft + (kWidth - kLeft - kRight) * devices / most; }
  double Y(double speed_up) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * speed_up / most;
  }
  // Returns the distance between marks: 1, 2, 5, 10, ..., so that there are at most ten.
  int Mark() const {
    for (int size = 1;; size *= 10) {
      for (const int step : {size, 2 * size, 5 * size}) {
        if (most / step <= 10) return step;
      }
    }
  }
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
  const double right = axes.X(axes.most);
  for (int mark = 0; mark <= axes.most; mark += axes.Mark()) {
    const double x = axes.X(mark);
    const double y = axes.Y(mark);
    if (mark > 0) {
      out += Line(kLeft, y, right, y, "stroke=\"#e6e6e6\"");
      out += Line(x, axes.Y(0), x, axes.Y(0) + 5, "stroke=\"#444\"");
      out += Text(x, axes.Y(0) + 20, "middle", absl::StrCat(mark));
    }
    out += Text(kLeft - 10, y + 4, "end", mark == 0 ? "0" : absl::StrCat(mark, "x"));
  }
  out += Line(kLeft, axes.Y(0), right, axes.Y(0), "stroke=\"#444\"");
  out += Line(kLeft, axes.Y(0), kLeft, axes.Y(axes.most), "stroke=\"#444\"");
  out += Text((kLeft + right) / 2, kHeight - 16, "middle", "devices");
  const double middle = (axes.Y(0) + axes.Y(axes.most)) / 2;
  out += Text(18, middle, "middle", "speed-up",
              absl::StrFormat("transform=\"rotate(-90 18 %.1f)\"", middle));
  return out;
}

std::string Legend(const Axes& axes, bool is_predicted, bool is_published) {
  std::string out;
  const double x = kLeft + 16;
  double y = axes.Y(axes.most) + 12;
  const auto entry = [&](const std::string& mark, const std::string& text) {
    absl::StrAppend(&out, mark, Text(x + 36, y + 4, "start", text));
    y += 20;
  };
  entry(absl::StrCat(Line(x, y, x + 28, y, Stroke(kMeasuredColor)),
                     Circle(x + 14, y, kMeasuredColor)),
        "measured");
  if (is_predicted) {
    entry(Line(x, y, x + 28, y, Stroke(kPredictedColor, " stroke-dasharray=\"7 4\"")), "predicted");
  }
  if (is_published) entry(Diamond(x + 14, y, kPublishedColor), "published");
  entry(Line(x, y, x + 28, y, Stroke(kIdealColor, " stroke-dasharray=\"2 4\"")), "ideal");
  return out;
}

std::string Curves(const Report& report, const Axes& axes) {
  std::string out = Line(axes.X(0), axes.Y(0), axes.X(axes.most), axes.Y(axes.most),
                         Stroke(kIdealColor, " stroke-dasharray=\"2 4\""));
  if (const auto one = report.PredictedSpeed(1)) {
    std::vector<std::pair<double, double>> line;
    for (int devices = 1; devices <= axes.most; ++devices) {
      const auto speed = report.PredictedSpeed(devices);
      if (speed.has_value()) line.emplace_back(axes.X(devices), axes.Y(*speed / *one));
    }
    out += Polyline(line, Stroke(kPredictedColor, " stroke-dasharray=\"7 4\""));
  }
  std::vector<std::pair<double, double>> line;
  for (const Measurement& point : report.measured) {
    line.emplace_back(axes.X(point.devices), axes.Y(report.SpeedUp(point)));
  }
  out += Polyline(line, Stroke(kMeasuredColor));
  if (const Published* published = PublishedFor(report.model)) {
    for (const Published::Point& point : published->points) {
      if (point.devices > axes.most) continue;
      out += Diamond(axes.X(point.devices), axes.Y(point.speed_up), kPublishedColor);
    }
  }
  for (const Measurement& point : report.measured) {
    const double x = axes.X(point.devices);
    const double y = axes.Y(report.SpeedUp(point));
    out += Circle(x, y, kMeasuredColor);
    // The label stands above the point if the axis is too near below it.
    const double label = y + 24 < axes.Y(0) - 4 ? y + 24 : y - 12;
    out += Text(x, label, "middle", absl::StrFormat("%.2fx", report.SpeedUp(point)),
                absl::StrCat("fill=\"", kMeasuredColor, "\" font-weight=\"bold\""));
  }
  return out;
}

}  // namespace

std::string ReportSvg(const Report& report) {
  const Published* published = PublishedFor(report.model);
  Axes axes;
  axes.most = report.measured.back().devices;
  if (published != nullptr) {
    for (const Published::Point& point : published->points) {
      axes.most = std::max<double>(axes.most, point.devices);
    }
  }
  for (const Measurement& point : report.measured) {
    axes.most = std::max(axes.most, std::ceil(report.SpeedUp(point)));
  }
  axes.most += 0.5;
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
      Legend(axes, report.costs().has_value(), published != nullptr), "</svg>\n");
}

}  // namespace trainyard::scaling
