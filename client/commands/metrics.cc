#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/selector.h"
#include "client/link/follower.h"
#include "client/output/plot.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

constexpr int kPlotPoints = 1000;
// Of series that were chosen: enough for a mean, few enough for one answer.
constexpr int kChosenPoints = 2000;
// What is drawn where nobody chose.
constexpr const char* kDefaultPlots[] = {"train.loss", "test.accuracy"};

bool IsDrawnByDefault(const std::string& name) {
  return std::find(std::begin(kDefaultPlots), std::end(kDefaultPlots), name) !=
         std::end(kDefaultPlots);
}

// A word on the command line stands for the series that begin with it. `comm` is about the time
// that communication takes beside the computation.
std::vector<std::string> PrefixesOf(const std::string& word) {
  if (word == "comm") return {"comm.", "compute."};
  return {absl::StrCat(word, ".")};
}

bool IsMeant(const std::string& series, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    if (series == word) return true;
    const std::vector<std::string> prefixes = PrefixesOf(word);
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const std::string& prefix) { return absl::StartsWith(series, prefix); });
  });
}

// The words behind JOB.
std::vector<std::string> WordsOf(const Options& options) {
  return {options.selectors.begin() + 1, options.selectors.end()};
}

// Asks for names alone, and gives those that --metric and the words choose. NOT_FOUND where the job
// has metrics, and none of that name.
absl::StatusOr<std::vector<std::string>> ChosenNames(const Context& context, link::ServerLink& link,
                                                     const std::string& job) {
  const std::vector<std::string> words = WordsOf(context.options);
  std::vector<std::string> names = context.options.metrics;
  if (words.empty()) return names;
  v1::QueryMetricsRequest request;
  request.set_name(job);
  request.set_max_points(1);
  TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse all,
                      link.Call(&v1::JobService::Stub::QueryMetrics, request));
  std::set<std::string> groups;
  const size_t given = names.size();
  for (const v1::MetricSeries& series : all.series()) {
    if (IsMeant(series.name(), words)) names.push_back(series.name());
    groups.insert(series.name().substr(0, series.name().find('.')));
  }
  if (names.size() == given && !groups.empty()) {
    return absl::NotFoundError(absl::StrCat(job, " has no metrics '", absl::StrJoin(words, "', '"),
                                            "'; it has ", absl::StrJoin(groups, ", ")));
  }
  return names;
}

// By the unit at the end of its name.
std::string ValueText(const std::string& name, double value) {
  if (!std::isfinite(value)) return output::NumberText(value);
  if (absl::EndsWith(name, "bytes")) return FormatBytes(std::llround(value));
  if (absl::EndsWith(name, "fraction")) return output::PercentText(value);
  if (absl::EndsWith(name, "seconds")) return output::SecondsText(value);
  return output::NumberText(value);
}

void Draw(const Context& context, const v1::QueryMetricsResponse& response) {
  output::PlotOptions options;
  options.width = std::min(context.terminal.width, 100);
  options.unicode = context.terminal.unicode;
  for (const v1::MetricSeries& series : response.series()) {
    const bool is_chosen = !context.options.metrics.empty() || context.options.selectors.size() > 1;
    if (!is_chosen && !IsDrawnByDefault(series.name())) continue;
    std::vector<output::Point> points;
    for (const v1::MetricPoint& point : series.points()) {
      points.push_back({static_cast<double>(point.step()), point.value()});
    }
    if (points.size() < 2) continue;
    context.out << output::RenderPlot(series.name(), points, options) << "\n";
  }
}

void PrintSummary(const Context& context, const v1::QueryMetricsResponse& response) {
  using output::Table;
  Table table({{"METRIC"},
               {"POINTS", Table::Align::kRight},
               {"MEAN", Table::Align::kRight},
               {"FIRST", Table::Align::kRight},
               {"MIN", Table::Align::kRight},
               {"MAX", Table::Align::kRight},
               {"LAST", Table::Align::kRight},
               {"AT STEP", Table::Align::kRight}});
  for (const v1::MetricSeries& series : response.series()) {
    if (series.points().empty()) continue;
    const auto by_value = [](const v1::MetricPoint& a, const v1::MetricPoint& b) {
      return a.value() < b.value();
    };
    const auto [min, max] =
        std::minmax_element(series.points().begin(), series.points().end(), by_value);
    const v1::MetricPoint& last = *series.points().rbegin();
    double sum = 0;
    for (const v1::MetricPoint& point : series.points()) sum += point.value();
    const auto text = [&](double value) { return ValueText(series.name(), value); };
    table.AddRow({series.name(), absl::StrCat(series.points_size()),
                  text(sum / series.points_size()), text(series.points(0).value()),
                  text(min->value()), text(max->value()), text(last.value()),
                  absl::StrCat(last.step())});
  }
  context.out << table.Render();
}

// Points as they come, until the job has ended.
Result FollowPoints(const Context& context, link::ServerLink& link, const std::string& name) {
  const std::vector<std::string>& wanted = context.options.metrics;
  const std::vector<std::string> words = WordsOf(context.options);
  link::Follower follower(link, context.clock, context.rng, {.names = {name}, .metrics_of = name});
  while (!context.interrupt.triggered()) {
    auto update = follower.Next(absl::Milliseconds(100));
    if (!update.has_value()) continue;
    if (const auto* end = std::get_if<link::End>(&*update)) return end->status;
    if (std::holds_alternative<link::MetricsEnd>(*update)) return link::kOk;
    const auto* points = std::get_if<link::Points>(&*update);
    if (points == nullptr) continue;
    for (const v1::MetricPoint& point : points->points) {
      const bool is_wanted = std::find(wanted.begin(), wanted.end(), point.name()) != wanted.end();
      const bool is_all = wanted.empty() && words.empty();
      if (!is_all && !is_wanted && !IsMeant(point.name(), words)) continue;
      // One line a point is JSON lines; a JSON array would never end.
      if (context.options.format == Format::kTable || context.options.format == Format::kWide) {
        context.out << point.step() << "\t" << point.name() << "\t"
                    << output::NumberText(point.value()) << "\n";
      } else {
        PrintList(context, {&point}, {point.name()});
      }
    }
    context.out << std::flush;
  }
  return link::kInterrupted;
}

}  // namespace

Result Metrics(const Context& context) {
  const Options& options = context.options;
  if (options.follow && (options.format == Format::kJson || options.format == Format::kYaml)) {
    return absl::InvalidArgumentError(
        "--follow has no end, and a JSON or YAML list needs one; use -o jsonl");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string name, ResolveOne(*link, options.selectors[0]));
  if (options.follow) return FollowPoints(context, *link, name);
  const bool is_table = options.format == Format::kTable || options.format == Format::kWide;
  v1::QueryMetricsRequest request;
  request.set_name(name);
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ChosenNames(context, *link, name));
  for (const std::string& metric : names) request.add_metrics(metric);
  // Data is whole; a plot has no more columns than it has.
  if (is_table) request.set_max_points(names.empty() ? kPlotPoints : kChosenPoints);
  TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse response,
                      link->Call(&v1::JobService::Stub::QueryMetrics, request));
  if (options.format == Format::kJsonLines) {
    for (const v1::MetricSeries& series : response.series()) {
      for (const v1::MetricPoint& point : series.points()) PrintList(context, {&point}, {""});
    }
    return link::kOk;
  }
  if (PrintResources(context, response.series())) return link::kOk;
  if (response.series().empty()) {
    context.Say(absl::StrCat(name, " has no metrics yet"));
    return link::kOk;
  }
  Draw(context, response);
  PrintSummary(context, response);
  return link::kOk;
}

}  // namespace trainyard::commands
