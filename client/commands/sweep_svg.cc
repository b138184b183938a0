// Writes the picture of a sweep as SVG by hand. Its colours keep their contrast on white and on
// black, and the rest follows the reader's scheme.
#include "client/commands/sweep_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/sweep_table.h"
#include "client/output/text.h"
#include "common/base/strings.h"
#include "common/sweep/space.h"

namespace trainyard::commands {
namespace {

using output::XmlEscaped;

constexpr double kPictureHeight = 460;
constexpr double kAxisTop = 116;
constexpr double kAxisBottom = 420;
constexpr double kAxisMargin = 90;  // left of the first axis, and right of the last
constexpr double kAxisDistance = 170;
constexpr int kAxisTitleWidth = 22;
constexpr int kTickWidth = 12;
// More texts than this would overlap on an axis.
constexpr int64_t kTicksMax = 16;

// Texts have an edge in the colour of the ground, since lines pass behind them.
constexpr char kSweepStyle[] =
    "<style>.ground{fill:#ffffff}.axis{stroke:#444444}\n"
    "text{fill:#222222;stroke:#ffffff;stroke-width:3px;paint-order:stroke}\n"
    ".faint{fill:#666666}\n"
    "@media (prefers-color-scheme:dark){.ground{fill:#16191d}.axis{stroke:#b8b8b8}\n"
    "text{fill:#e8e8e8;stroke:#16191d}.faint{fill:#a8a8a8}}</style>\n";

// The colours of the worst trial, of the one in the middle and of the best.
struct Color {
  double red = 0;
  double green = 0;
  double blue = 0;
};
constexpr Color kWorstColor = {214, 96, 20};
constexpr Color kMiddleColor = {140, 140, 140};
constexpr Color kBestColor = {30, 122, 205};

// Returns the colour of a trial that is better than this share of the others.
std::string RankColor(double share) {
  const Color& from = share < 0.5 ? kWorstColor : kMiddleColor;
  const Color& to = share < 0.5 ? kMiddleColor : kBestColor;
  const double part = share < 0.5 ? 2 * share : 2 * share - 1;
  const auto mix = [&](double a, double b) { return static_cast<int>(a + part * (b - a) + 0.5); };
  return absl::StrFormat("#%02x%02x%02x", mix(from.red, to.red), mix(from.green, to.green),
                         mix(from.blue, to.blue));
}

double HeightOf(double place) {
  return kAxisBottom - std::clamp(place, 0.0, 1.0) * (kAxisBottom - kAxisTop);
}

// A vertical line with its texts. Places are 0 at the bottom and 1 at the top.
struct Axis {
  std::string path;
  std::string title;
  std::string scale;
  std::vector<std::pair<double, std::string>> ticks;
};

// A parameter with its axis.
struct ParameterAxis {
  Axis axis;
  sweep::Distribution distribution;
};

std::string ScaleText(absl::string_view distribution) {
  if (absl::StartsWith(distribution, "log")) return "log scale";
  if (absl::StartsWith(distribution, "[") || absl::StartsWith(distribution, "choice")) return "";
  return "linear";
}

// Returns the parameters in the order of their paths. One whose text cannot be read has no axis.
std::vector<ParameterAxis> ParameterAxes(const v1::Sweep& sweep) {
  std::vector<ParameterAxis> axes;
  const auto& parameters = sweep.spec().sweep().parameters();
  for (const auto& [path, name] : ParameterNames(sweep.spec().sweep())) {
    const std::string& text = parameters.at(path);
    auto distribution = sweep::Distribution::Parse(text);
    if (!distribution.ok()) continue;
    Axis axis = {path, name, ScaleText(text), {}};
    const int64_t distinct = distribution->distinct();
    if (axis.scale.empty() && distinct <= kTicksMax) {
      for (int64_t i = 0; i < distinct; ++i) {
        const std::string value = distribution->Distinct(i);
        axis.ticks.emplace_back(distribution->PlaceOf(value), ParameterText(value));
      }
    }
    if (axis.ticks.empty()) {
      axis.ticks = {{0, ParameterText(distribution->At(0))},
                    {1, ParameterText(distribution->At(std::nextafter(1.0, 0.0)))}};
    }
    axes.push_back({std::move(axis), *std::move(distribution)});
  }
  return axes;
}

// The objective: the smallest and the largest number that a trial has told.
struct ObjectiveScale {
  double worst = 0;
  double best = 0;
  bool is_known = false;

  // A value that is no number stands with the worst ones.
  double PlaceOf(double value) const {
    if (!std::isfinite(value)) return 0;
    return worst == best ? 1 : (value - worst) / (best - worst);
  }
};

ObjectiveScale ScaleOf(const v1::Sweep& sweep) {
  ObjectiveScale scale;
  const bool is_maximized = sweep.spec().sweep().has_maximize();
  for (const v1::SweepTrial& trial : sweep.trials()) {
    if (!trial.has_value() || !std::isfinite(trial.value())) continue;
    const double value = trial.value();
    if (!scale.is_known) scale = {value, value, true};
    scale.worst = is_maximized ? std::min(scale.worst, value) : std::max(scale.worst, value);
    scale.best = is_maximized ? std::max(scale.best, value) : std::min(scale.best, value);
  }
  return scale;
}

std::string SvgText(double x, double y, absl::string_view anchor, absl::string_view text,
                    absl::string_view style = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s%s>%s</text>\n", x, y,
                         anchor, style.empty() ? "" : " ", style, XmlEscaped(text));
}

// The texts of the last axis stand at its right, where no lines are.
std::string DrawAxis(const Axis& axis, double x, bool is_last) {
  std::string out = absl::StrFormat(
      "<g><title>%s</title><line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
      "y2=\"%.1f\"/>\n",
      XmlEscaped(axis.path), x, kAxisTop, x, kAxisBottom);
  out += SvgText(x, kAxisTop - 34, "middle", output::Shortened(axis.title, kAxisTitleWidth),
                 "font-weight=\"bold\"");
  out += SvgText(x, kAxisTop - 18, "middle", axis.scale, "class=\"faint\" font-size=\"10\"");
  for (const auto& [place, text] : axis.ticks) {
    const double y = HeightOf(place);
    absl::StrAppendFormat(
        &out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x - 4, y,
        x + 4, y);
    out += SvgText(is_last ? x + 7 : x - 7, y + 4, is_last ? "start" : "end",
                   output::Shortened(text, kTickWidth), "font-size=\"11\"");
  }
  return absl::StrCat(out, "</g>\n");
}

std::string TrialText(const v1::SweepTrial& trial, const std::vector<ParameterAxis>& axes,
                      const std::string& objective) {
  std::vector<std::string> parts;
  for (const ParameterAxis& one : axes) {
    const auto found = trial.values().find(one.axis.path);
    if (found == trial.values().end()) continue;
    parts.push_back(absl::StrCat(one.axis.title, " ", ParameterText(found->second)));
  }
  if (trial.has_value()) {
    parts.push_back(absl::StrCat(objective, " ", output::NumberText(trial.value())));
  }
  return absl::StrCat("trial ", trial.index(), trial.job().empty() ? "" : ", ", trial.job(), ": ",
                      absl::StrJoin(parts, ", "));
}

// Returns the looks of a line. Trials that were stopped are thin and pale, and those without a
// value are dashed.
std::string StrokeOf(const v1::SweepTrial& trial, bool is_best, double share) {
  if (!trial.has_value()) {
    return "stroke=\"#8c8c8c\" stroke-width=\"1\" stroke-opacity=\"0.5\" stroke-dasharray=\"3 4\"";
  }
  const bool is_stopped = trial.state() == v1::TRIAL_STATE_STOPPED;
  const char* look = is_best      ? "stroke-width=\"4\""
                     : is_stopped ? "stroke-width=\"1\" stroke-opacity=\"0.4\""
                                  : "stroke-width=\"1.6\" stroke-opacity=\"0.85\"";
  return absl::StrCat("stroke=\"", RankColor(share), "\" ", look);
}

// Draws the worst trials first, so that the better ones lie above them.
std::string DrawTrials(const v1::Sweep& sweep, const std::vector<ParameterAxis>& axes,
                       const ObjectiveScale& scale) {
  std::vector<const v1::SweepTrial*> trials = TrialsBestFirst(sweep);
  std::reverse(trials.begin(), trials.end());
  const auto valued = std::count_if(trials.begin(), trials.end(),
                                    [](const auto* trial) { return trial->has_value(); });
  const v1::SweepTrial* best = BestTrial(sweep);
  if (best != nullptr) {
    std::stable_partition(trials.begin(), trials.end(), [&](const auto* t) { return t != best; });
  }
  std::string out;
  int rank = 0;
  for (const v1::SweepTrial* trial : trials) {
    std::string points;
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto found = trial->values().find(axes[i].axis.path);
      if (found == trial->values().end()) continue;
      absl::StrAppendFormat(&points, "%.1f,%.1f ",
                            kAxisMargin + kAxisDistance * static_cast<double>(i),
                            HeightOf(axes[i].distribution.PlaceOf(found->second)));
    }
    if (points.empty()) continue;
    if (trial->has_value()) {
      absl::StrAppendFormat(&points, "%.1f,%.1f",
                            kAxisMargin + kAxisDistance * static_cast<double>(axes.size()),
                            HeightOf(scale.PlaceOf(trial->value())));
    }
    const double share = trial->has_value() && valued > 1
                             ? static_cast<double>(rank++) / static_cast<double>(valued - 1)
                             : 1;
    absl::StrAppend(&out, "<polyline points=\"", absl::StripTrailingAsciiWhitespace(points),
                    "\" fill=\"none\" stroke-linejoin=\"round\" ",
                    StrokeOf(*trial, trial == best, share), "><title>",
                    XmlEscaped(TrialText(*trial, axes, ObjectiveOf(sweep.spec().sweep()))),
                    "</title></polyline>\n");
  }
  return out;
}

std::string SubtitleOf(const v1::Sweep& sweep) {
  const v1::SweepTrial* best = BestTrial(sweep);
  return absl::StrCat(SweepSearchText(sweep.spec().sweep().search()), ", ",
                      FormatCount(sweep.trials_begun()),
                      sweep.trials_begun() == 1 ? " trial" : " trials",
                      best == nullptr ? ""
                                      : absl::StrCat("; the best is trial ", best->index(),
                                                     " with ", ObjectiveOf(sweep.spec().sweep()),
                                                     " ", output::NumberText(best->value())));
}

}  // namespace

std::string SweepSvg(const v1::Sweep& sweep) {
  const v1::SweepSpec& spec = sweep.spec().sweep();
  const std::vector<ParameterAxis> axes = ParameterAxes(sweep);
  const ObjectiveScale scale = ScaleOf(sweep);
  const double width =
      std::max(2 * kAxisMargin + kAxisDistance * static_cast<double>(axes.size()), 520.0);
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n",
      width, kPictureHeight, width, kPictureHeight);
  const std::string title = absl::StrCat(sweep.name(), "  ", sweep.title());
  absl::StrAppend(&out, "<title>", XmlEscaped(title), "</title>\n", kSweepStyle,
                  "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
                  SvgText(24, 30, "start", title, "font-size=\"17\" font-weight=\"bold\""),
                  SvgText(24, 50, "start", SubtitleOf(sweep), "class=\"faint\""));
  out += DrawTrials(sweep, axes, scale);
  for (size_t i = 0; i < axes.size(); ++i) {
    out += DrawAxis(axes[i].axis, kAxisMargin + kAxisDistance * static_cast<double>(i),
                    /*is_last=*/false);
  }
  Axis objective = {ObjectiveOf(spec), ObjectiveOf(spec), "better values above", {}};
  if (scale.is_known) {
    objective.ticks.emplace_back(1, output::NumberText(scale.best));
    if (scale.worst != scale.best) {
      objective.ticks.emplace_back(0, output::NumberText(scale.worst));
    }
  }
  out += DrawAxis(objective, kAxisMargin + kAxisDistance * static_cast<double>(axes.size()),
                  /*is_last=*/true);
  return absl::StrCat(out, "</svg>\n");
}

}  // namespace trainyard::commands
