// metrics draws curves and prints statistics of the metrics of a job.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/link/follower.h"
#include "client/output/plot.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct MetricsOptions {
  std::vector<std::string> words;  // the job, then groups of metrics
  std::vector<std::string> metrics;
  bool follow = false;
};

constexpr int kPlotPoints = 1000;
// The number of points that are fetched of each chosen series: enough for a mean, and few enough
// for one answer.
constexpr int kChosenPoints = 2000;
// These series are drawn if the user chooses none.
constexpr const char* kDefaultPlots[] = {"train.loss", "test.accuracy"};

bool IsDrawnByDefault(const std::string& name) {
  return std::find(std::begin(kDefaultPlots), std::end(kDefaultPlots), name) !=
         std::end(kDefaultPlots);
}

// A word on the command line stands for the series whose names begin with it. `comm` also takes
// those about the computation, because communication is judged beside it.
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

// Returns the words after JOB.
std::vector<std::string> GroupsOf(const MetricsOptions& options) {
  return {options.words.begin() + 1, options.words.end()};
}

// Asks for the names of all series, and returns those that --metric and the words choose. Returns
// NOT_FOUND if the job has metrics, but none of these.
absl::StatusOr<std::vector<std::string>> ChosenNames(link::ServerLink& link,
                                                     const MetricsOptions& options,
                                                     const std::string& job) {
  const std::vector<std::string> words = GroupsOf(options);
  std::vector<std::string> names = options.metrics;
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

// Formats a value by the unit at the end of the metric's name.
std::string ValueText(const std::string& name, double value) {
  if (!std::isfinite(value)) return output::NumberText(value);
  if (absl::EndsWith(name, "bytes")) return FormatBytes(std::llround(value));
  if (absl::EndsWith(name, "fraction")) return output::PercentText(value);
  if (absl::EndsWith(name, "seconds")) return output::SecondsText(value);
  return output::NumberText(value);
}

void Draw(const Context& context, const MetricsOptions& options,
          const v1::QueryMetricsResponse& response) {
  output::PlotOptions plot;
  plot.width = std::min(context.terminal.width, 100);
  plot.unicode = context.terminal.unicode;
  for (const v1::MetricSeries& series : response.series()) {
    const bool is_chosen = !options.metrics.empty() || options.words.size() > 1;
    if (!is_chosen && !IsDrawnByDefault(series.name())) continue;
    std::vector<output::Point> points;
    for (const v1::MetricPoint& point : series.points()) {
      points.push_back({static_cast<double>(point.step()), point.value()});
    }
    if (points.size() < 2) continue;
    context.out << output::RenderPlot(series.name(), points, plot) << "\n";
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

// Prints points as they come, until the job has ended.
Result FollowPoints(const Context& context, link::ServerLink& link, const MetricsOptions& options,
                    const std::string& name) {
  const std::vector<std::string>& wanted = options.metrics;
  const std::vector<std::string> words = GroupsOf(options);
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
      // Points that come one by one can be JSON lines. A JSON list would never end.
      if (context.options.IsTable()) {
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

Result Metrics(const Context& context, const MetricsOptions& options) {
  const Format format = context.options.format;
  if (options.follow && (format == Format::kJson || format == Format::kYaml)) {
    return absl::InvalidArgumentError(
        "--follow has no end, and a JSON or YAML list needs one; use -o jsonl");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string name, ResolveOne(*link, options.words[0]));
  if (options.follow) return FollowPoints(context, *link, options, name);
  v1::QueryMetricsRequest request;
  request.set_name(name);
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ChosenNames(*link, options, name));
  for (const std::string& metric : names) request.add_metrics(metric);
  // Data formats get all points. A plot can use no more of them than it has columns.
  if (context.options.IsTable())
    request.set_max_points(names.empty() ? kPlotPoints : kChosenPoints);
  TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse response,
                      link->Call(&v1::JobService::Stub::QueryMetrics, request));
  if (format == Format::kJsonLines) {
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
  Draw(context, options, response);
  PrintSummary(context, response);
  return link::kOk;
}

}  // namespace

void AddMetrics(VerbTable& verbs) {
  verbs.Add<MetricsOptions>(
      "metrics", "Draw or print the metrics of a job",
      "last --metric train.loss\n"
      "  trainyard metrics last comm      what communication costs, and how much is hidden",
      [](client::Flags& flags, MetricsOptions& options) {
        flags
            .Words("JOB", options.words,
                   absl::StrCat(kSelectorHelp,
                                "; then words for groups of metrics: comm for comm.* and "
                                "compute.*, gpu for gpu.*"))
            .Required()
            .ShownAs("JOB [GROUP ...]");
        flags.Repeated("--metric", options.metrics, "Only this metric; may be repeated");
        flags.Switch("-f,--follow", options.follow, "Print points as they come");
      },
      Metrics);
}

}  // namespace trainyard::commands
