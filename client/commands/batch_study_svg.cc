// Writes the picture of a batch-size study as SVG by hand. Its colours keep their contrast on white
// and on black, and the rest follows the reader's scheme.
#include "client/commands/batch_study_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/output/metric_direction.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using output::XmlEscaped;

constexpr double kStudyWidth = 760;
constexpr double kPanelLeft = 84;
constexpr double kPanelRight = 728;
constexpr double kPanelHeight = 260;
constexpr double kFirstPanelTop = 112;
constexpr double kSecondPanelTop = 452;
constexpr double kStudyHeight = 776;
// Texts of ticks that are nearer to each other than this would overlap.
constexpr double kTickRoom = 44;
// The crosses of each optimizer have a row of their own above the lines.
constexpr double kCrossRowHeight = 14;

constexpr char kStudyStyle[] =
    "<style>.ground{fill:#ffffff}.axis{stroke:#444444}.grid{stroke:#e4e4e4}\n"
    "text{fill:#222222;stroke:#ffffff;stroke-width:3px;paint-order:stroke}\n"
    ".faint{fill:#666666}\n"
    "@media (prefers-color-scheme:dark){.ground{fill:#16191d}.axis{stroke:#b8b8b8}\n"
    ".grid{stroke:#30353b}text{fill:#e8e8e8;stroke:#16191d}.faint{fill:#a8a8a8}}</style>\n";

constexpr const char* kStudyColors[] = {"#1f7acc", "#d1660a", "#2c9a5c", "#a45fc4", "#c9405f"};
constexpr size_t kStudyColorCount = sizeof(kStudyColors) / sizeof(kStudyColors[0]);

// Maps positive numbers to a range of coordinates.
struct LogScale {
  double least = 1;
  double most = 1;
  double from = 0;
  double to = 0;

  double At(double value) const {
    return from + (to - from) * std::log(value / least) / std::log(most / least);
  }
};

// Returns a scale with room around the outermost values. `values` is not empty.
LogScale ScaleFor(const std::vector<double>& values, double from, double to) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double room = std::max(std::pow(*most / *least, 0.06), 1.15);
  return {*least / room, *most * room, from, to};
}

// Returns 1, 2 and 5 times the powers of ten within the scale, or all nine digits if there would
// be fewer than two.
std::vector<double> TicksOf(const LogScale& scale) {
  std::vector<double> ticks;
  for (const std::vector<int>& digits :
       {std::vector<int>{1, 2, 5}, std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
    ticks.clear();
    for (double power = std::pow(10, std::floor(std::log10(scale.least))); power <= scale.most;
         power *= 10) {
      for (const int digit : digits) {
        const double tick = digit * power;
        if (tick >= scale.least && tick <= scale.most) ticks.push_back(tick);
      }
    }
    if (ticks.size() >= 2) return ticks;
  }
  return {scale.least, std::sqrt(scale.least * scale.most), scale.most};
}

std::string StudyLine(double x1, double y1, double x2, double y2, absl::string_view style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                         y2, style);
}

std::string StudyLabel(double x, double y, absl::string_view anchor, absl::string_view text,
                       absl::string_view style = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s%s>%s</text>\n", x, y,
                         anchor, style.empty() ? "" : " ", style, XmlEscaped(text));
}

std::string StudyDot(double x, double y, absl::string_view color, absl::string_view title) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"><title>%s</title></circle>\n", x, y,
      color, XmlEscaped(title));
}

std::string KneeRing(double x, double y, absl::string_view color) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
      x, y, color);
}

std::string StudyCross(double x, double y, absl::string_view color, absl::string_view title) {
  return absl::StrFormat(
      "<path d=\"M%.1f %.1fl9 9m0 -9l-9 9\" stroke=\"%s\" stroke-width=\"2\" fill=\"none\">"
      "<title>%s</title></path>\n",
      x - 4.5, y - 4.5, color, XmlEscaped(title));
}

// One of the two panels.
struct Panel {
  std::string title;
  double top = 0;
  std::optional<double> (*value_of)(const StudyRow&) = nullptr;
  std::string (*text_of)(double) = nullptr;
  bool has_perfect_lines = false;
};

std::optional<double> StepsOf(const StudyRow& row) {
  if (!row.steps.has_value()) return std::nullopt;
  return static_cast<double>(*row.steps);
}

std::optional<double> SecondsOf(const StudyRow& row) {
  if (!row.seconds.has_value() || *row.seconds <= 0) return std::nullopt;
  return row.seconds;
}

std::string StepsTickText(double steps) {
  return steps >= 1 ? FormatCount(std::llround(steps)) : output::NumberText(steps);
}

std::string SecondsTickText(double seconds) {
  return seconds < 60 ? output::SecondsText(seconds) : DurationText(absl::Seconds(seconds));
}

const char* ColorOf(size_t index) {
  return kStudyColors[index % kStudyColorCount];
}

// Draws the panels of one study, which it borrows.
class StudyPainter {
 public:
  explicit StudyPainter(const BatchStudy& study) : study_(study) {
    std::vector<double> batches;
    for (const StudyRow& row : study.rows) {
      batches.push_back(static_cast<double>(std::max<int64_t>(row.run.batch, 1)));
      batches_.insert(std::max<int64_t>(row.run.batch, 1));
    }
    if (batches.empty()) batches = {1};
    x_ = ScaleFor(batches, kPanelLeft, kPanelRight);
  }

  std::string Draw(const Panel& panel) const {
    std::string out =
        StudyLabel(kPanelLeft, panel.top - 12, "start", panel.title, "font-weight=\"bold\"");
    std::vector<double> values;
    for (const StudyRow& row : study_.rows) {
      if (const auto value = panel.value_of(row)) values.push_back(*value);
    }
    out += DrawBatches(panel);
    if (values.empty()) {
      return absl::StrCat(
          out, StudyLabel((kPanelLeft + kPanelRight) / 2, panel.top + kPanelHeight / 2, "middle",
                          "no training has reached the target", "class=\"faint\""));
    }
    const bool has_crosses = values.size() < study_.rows.size();
    if (panel.has_perfect_lines) AddPerfectEnds(panel, values);
    const std::vector<std::string> names = study_.Optimizers();
    const double crosses = has_crosses ? kCrossRowHeight * static_cast<double>(names.size()) : 0;
    const LogScale y = ScaleFor(values, panel.top + kPanelHeight, panel.top + crosses);
    for (const double tick : TicksOf(y)) {
      const double at = y.At(tick);
      absl::StrAppend(
          &out, StudyLine(kPanelLeft, at, kPanelRight, at, "class=\"grid\""),
          StudyLabel(kPanelLeft - 8, at + 4, "end", panel.text_of(tick), "font-size=\"11\""));
    }
    out += StudyLine(kPanelLeft, panel.top, kPanelLeft, panel.top + kPanelHeight, "class=\"axis\"");
    for (size_t i = 0; i < names.size(); ++i) out += DrawOptimizer(panel, y, names[i], i);
    return out;
  }

  std::string DrawLegend() const {
    std::string out;
    double x = kPanelLeft;
    const double y = 76;
    const std::vector<std::string> names = study_.Optimizers();
    const auto entry = [&](const std::string& mark, absl::string_view text) {
      absl::StrAppend(&out, mark, StudyLabel(x + 32, y + 4, "start", text));
      x += 56 + 7.0 * static_cast<double>(text.size());
    };
    for (size_t i = 0; i < names.size(); ++i) {
      entry(absl::StrCat(StudyLine(x, y, x + 26, y, Stroke(ColorOf(i))),
                         StudyDot(x + 13, y, ColorOf(i), names[i])),
            names[i]);
    }
    constexpr const char* kGray = "#8a8a8a";
    entry(StudyLine(x, y, x + 26, y, DashedStroke(kGray)), "perfect scaling");
    entry(KneeRing(x + 13, y, kGray), "knee");
    entry(StudyCross(x + 13, y, kGray, "not reached"), "target not reached");
    return out;
  }

 private:
  static std::string Stroke(absl::string_view color) {
    return absl::StrCat("fill=\"none\" stroke=\"", color,
                        "\" stroke-width=\"2\" stroke-linejoin=\"round\"");
  }
  static std::string DashedStroke(absl::string_view color) {
    return absl::StrCat("stroke=\"", color, "\" stroke-width=\"1.5\" stroke-dasharray=\"5 5\"");
  }

  static const StudyRow* FirstWith(const Panel& panel, const std::vector<const StudyRow*>& rows) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const StudyRow* row) {
      return panel.value_of(*row).has_value();
    });
    return found == rows.end() ? nullptr : *found;
  }

  // Returns the steps that perfect scaling from `base` would need at the batch of `last`.
  static double PerfectAt(const StudyRow& base, const StudyRow& last) {
    return *StepsOf(base) * static_cast<double>(base.run.batch) /
           static_cast<double>(last.run.batch);
  }

  // The lines of perfect scaling need room too.
  void AddPerfectEnds(const Panel& panel, std::vector<double>& values) const {
    for (const std::string& name : study_.Optimizers()) {
      const std::vector<const StudyRow*> rows = study_.RowsOf(name);
      const StudyRow* base = FirstWith(panel, rows);
      if (base != nullptr) values.push_back(PerfectAt(*base, *rows.back()));
    }
  }

  std::string DrawBatches(const Panel& panel) const {
    const double bottom = panel.top + kPanelHeight;
    std::string out = StudyLine(kPanelLeft, bottom, kPanelRight, bottom, "class=\"axis\"");
    double last = -kTickRoom;
    for (const int64_t batch : batches_) {
      const double x = x_.At(static_cast<double>(batch));
      out += StudyLine(x, bottom, x, bottom + 5, "class=\"axis\"");
      if (x - last < kTickRoom) continue;
      last = x;
      out += StudyLabel(x, bottom + 19, "middle", FormatCount(batch), "font-size=\"11\"");
    }
    return absl::StrCat(out, StudyLabel((kPanelLeft + kPanelRight) / 2, bottom + 38, "middle",
                                        "global batch", "class=\"faint\""));
  }

  std::string DrawOptimizer(const Panel& panel, const LogScale& y, const std::string& name,
                            size_t index) const {
    const char* color = ColorOf(index);
    const double cross_row = panel.top + kCrossRowHeight * (static_cast<double>(index) + 0.5);
    const std::vector<const StudyRow*> rows = study_.RowsOf(name);
    std::string out;
    const StudyRow* base = FirstWith(panel, rows);
    if (panel.has_perfect_lines && base != nullptr && base != rows.back()) {
      out += StudyLine(X(*base), y.At(*StepsOf(*base)), X(*rows.back()),
                       y.At(PerfectAt(*base, *rows.back())), DashedStroke(color));
    }
    std::string points;
    std::string marks;
    for (const StudyRow* row : rows) {
      const std::string title = absl::StrCat(name, ", batch ", row->run.batch, ", ", row->run.job);
      const auto value = panel.value_of(*row);
      if (!value.has_value()) {
        const absl::string_view why = row->run.failure.empty() ? "target not reached" : "failed";
        marks += StudyCross(X(*row), cross_row, color, absl::StrCat(title, ": ", why));
        continue;
      }
      const double at = y.At(*value);
      absl::StrAppendFormat(&points, "%s%.1f,%.1f", points.empty() ? "" : " ", X(*row), at);
      marks += StudyDot(X(*row), at, color, absl::StrCat(title, ": ", panel.text_of(*value)));
      if (!row->is_knee) continue;
      absl::StrAppend(
          &marks, KneeRing(X(*row), at, color),
          StudyLabel(X(*row), at - 15, "middle", absl::StrCat("knee ", FormatCount(row->run.batch)),
                     "font-size=\"11\""));
    }
    if (!points.empty()) {
      absl::StrAppend(&out, "<polyline points=\"", points, "\" ", Stroke(color), "/>\n");
    }
    return out + marks;
  }

  double X(const StudyRow& row) const {
    return x_.At(static_cast<double>(std::max<int64_t>(row.run.batch, 1)));
  }

  const BatchStudy& study_;
  std::set<int64_t> batches_;
  LogScale x_;
};

}  // namespace

std::string BatchStudySvg(const BatchStudy& study) {
  const StudyPainter painter(study);
  std::string target = "no target";
  if (study.target.has_value()) {
    const bool is_larger_better = output::IsLargerBetter(study.target->metric);
    target = absl::StrCat("target: ", study.target->metric,
                          is_larger_better ? " of at least " : " of at most ",
                          output::NumberText(study.target->value), "; one training at each point");
  }
  const std::string title = absl::StrCat(study.title, ": batch-size study");
  const Panel steps = {"steps to the target", kFirstPanelTop, StepsOf, StepsTickText,
                       /*has_perfect_lines=*/true};
  const Panel seconds = {"time to the target", kSecondPanelTop, SecondsOf, SecondsTickText,
                         /*has_perfect_lines=*/false};
  return absl::StrCat(
      absl::StrFormat(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
          "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n",
          kStudyWidth, kStudyHeight, kStudyWidth, kStudyHeight),
      "<title>", XmlEscaped(title), "</title>\n", kStudyStyle,
      "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
      StudyLabel(24, 30, "start", title, "font-size=\"17\" font-weight=\"bold\""),
      StudyLabel(24, 50, "start", target, "class=\"faint\""), painter.DrawLegend(),
      painter.Draw(steps), painter.Draw(seconds), "</svg>\n");
}

}  // namespace trainyard::commands
