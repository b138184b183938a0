// compare puts jobs side by side: what differs in their specs, what came out, and what it cost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/code_diff.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/metric_direction.h"
#include "client/output/plot.h"
#include "client/output/proto_text.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"
#include "common/spec/diff.h"

namespace trainyard::commands {
namespace {

using output::IsLargerBetter;
using output::Table;

struct CompareOptions {
  std::vector<std::string> jobs;
  std::vector<std::string> metrics;
  std::optional<int> at;
};

constexpr size_t kComparedJobsMax = 16;
constexpr int kComparedPoints = 600;
constexpr int kSpecValueWidth = 28;

// The points of a metric that the table shows.
struct SeriesSummary {
  std::optional<double> last;
  std::optional<double> best;
  int64_t best_step = 0;
};

// A job with its curves.
struct Subject {
  v1::Job job;
  std::map<std::string, v1::MetricSeries> series;

  std::string id() const { return output::ShortName(job.name()); }
};

// Returns true for what a training comes to, and not for rates and use of devices.
bool IsResult(const std::string& metric) {
  return absl::StartsWith(metric, "train.") || absl::StartsWith(metric, "test.") ||
         !absl::StrContains(metric, '.');
}

// Looks at the points up to a step, if one is given.
SeriesSummary SummarizeSeries(const std::string& metric, const v1::MetricSeries& series,
                              std::optional<int> at) {
  SeriesSummary summary;
  for (const v1::MetricPoint& point : series.points()) {
    if (at.has_value() && point.step() > *at) break;
    summary.last = point.value();
    if (!std::isfinite(point.value())) continue;
    const bool is_better =
        !summary.best.has_value() ||
        (IsLargerBetter(metric) ? point.value() > *summary.best : point.value() < *summary.best);
    if (!is_better) continue;
    summary.best = point.value();
    summary.best_step = point.step();
  }
  return summary;
}

absl::StatusOr<std::vector<Subject>> FetchSubjects(link::ServerLink& link,
                                                   const std::vector<std::string>& names) {
  std::vector<Subject> subjects;
  for (const std::string& name : names) {
    Subject subject;
    v1::GetJobRequest get;
    get.set_name(name);
    TY_ASSIGN_OR_RETURN(subject.job, link.Call(&v1::JobService::Stub::GetJob, get));
    v1::QueryMetricsRequest query;
    query.set_name(name);
    query.set_max_points(kComparedPoints);
    TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse response,
                        link.Call(&v1::JobService::Stub::QueryMetrics, query));
    for (const v1::MetricSeries& series : response.series()) {
      subject.series[series.name()] = series;
    }
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

// The values of the fields in which not all specs agree, by path, one for each job.
using SpecRows = std::map<std::string, std::vector<std::string>>;

SpecRows DifferingFields(const std::vector<Subject>& subjects) {
  SpecRows rows;
  const v1::JobSpec& first = subjects.front().job.resolved_spec();
  for (size_t i = 1; i < subjects.size(); ++i) {
    for (const auto& one : spec::DiffSpecs(first, subjects[i].job.resolved_spec())) {
      std::vector<std::string>& row = rows[one.path];
      // A job that is not told here has the value of the first.
      if (row.empty()) row.assign(subjects.size(), one.left_json);
      row[i] = one.right_json;
    }
  }
  return rows;
}

// Returns the names of the results that at least one of the jobs has.
std::set<std::string> ResultsOf(const std::vector<Subject>& subjects) {
  std::set<std::string> names;
  for (const Subject& subject : subjects) {
    for (const auto& [name, series] : subject.series) {
      if (IsResult(name)) names.insert(name);
    }
  }
  return names;
}

SeriesSummary SummarizeSeries(const std::string& metric, const Subject& subject,
                              std::optional<int> at) {
  const auto found = subject.series.find(metric);
  return found == subject.series.end() ? SeriesSummary()
                                       : SummarizeSeries(metric, found->second, at);
}

double DeviceHours(const v1::Job& job) {
  return absl::ToDoubleHours(output::ToDuration(job.device_time()));
}

std::string RunTimeText(const v1::Job& job) {
  if (!job.has_start_time() || !job.has_end_time()) return "";
  return DurationText(output::ToTime(job.end_time()) - output::ToTime(job.start_time()));
}

Table ComparisonTable(const std::string& title, const std::vector<Subject>& subjects) {
  std::vector<Table::Column> columns;
  columns.push_back({title, Table::Align::kLeft});
  for (const Subject& subject : subjects) columns.push_back({subject.id(), Table::Align::kRight});
  return Table(std::move(columns));
}

void PrintSpecs(const Context& context, const std::vector<Subject>& subjects) {
  const SpecRows rows = DifferingFields(subjects);
  if (rows.empty()) {
    context.out << "the specs are equal\n\n";
    return;
  }
  Table table = ComparisonTable("SPEC", subjects);
  for (const auto& [path, values] : rows) {
    std::vector<std::string> cells = {path};
    for (const std::string& value : values) {
      cells.push_back(output::Shortened(value, kSpecValueWidth));
    }
    table.AddRow(std::move(cells));
  }
  context.out << table.Render() << "\n";
}

void PrintResults(const Context& context, const std::vector<Subject>& subjects,
                  std::optional<int> at) {
  const std::set<std::string> names = ResultsOf(subjects);
  if (names.empty()) return;
  Table table = ComparisonTable(
      at.has_value() ? absl::StrCat("UP TO STEP ", *at) : std::string("METRIC"), subjects);
  for (const std::string& name : names) {
    std::vector<std::string> last = {name + " last"};
    std::vector<std::string> best = {name + " best"};
    for (const Subject& subject : subjects) {
      const SeriesSummary summary = SummarizeSeries(name, subject, at);
      last.push_back(summary.last.has_value() ? output::NumberText(*summary.last) : "");
      best.push_back(summary.best.has_value() ? output::NumberText(*summary.best) : "");
    }
    const bool is_same = std::equal(last.begin() + 1, last.end(), best.begin() + 1);
    table.AddRow(std::move(last));
    if (!is_same) table.AddRow(std::move(best));
  }
  context.out << table.Render() << "\n";
}

void PrintCosts(const Context& context, const std::vector<Subject>& subjects) {
  Table table = ComparisonTable("COST", subjects);
  const auto add = [&](const std::string& title, auto text_of) {
    std::vector<std::string> cells = {title};
    for (const Subject& subject : subjects) cells.push_back(text_of(subject.job));
    table.AddRow(std::move(cells));
  };
  add("state", [&](const v1::Job& job) {
    return context.terminal.Style(output::StateStyle(job.state()), output::StateText(job.state()));
  });
  add("device-hours", [](const v1::Job& job) { return absl::StrFormat("%.3g", DeviceHours(job)); });
  add("ran for", RunTimeText);
  add("devices", [](const v1::Job& job) { return output::DevicesText(job.resolved_spec()); });
  add("attempts", [](const v1::Job& job) { return absl::StrCat(job.attempt()); });
  context.out << table.Render() << "\n";
}

// Says for each job whose code is not that of the first how many files differ.
void PrintCodeChanges(const Context& context, link::ServerLink& link,
                      const std::vector<Subject>& subjects) {
  const v1::Job& first = subjects.front().job;
  for (size_t i = 1; i < subjects.size(); ++i) {
    const v1::Job& other = subjects[i].job;
    const std::string& code = other.resolved_spec().program().code();
    if (code.empty() || first.resolved_spec().program().code().empty() ||
        code == first.resolved_spec().program().code()) {
      continue;
    }
    const auto changes = CodeChanges(context, link, first.name(), other.name());
    context.out << "the code of " << other.name() << " differs from that of " << first.name();
    if (changes.ok() && !changes->empty()) context.out << ": files " << *changes;
    context.out << "\n\n";
  }
}

// Returns the metrics that are drawn: those that were chosen, or the one that says most.
std::vector<std::string> DrawnMetrics(const std::vector<Subject>& subjects,
                                      const std::vector<std::string>& chosen) {
  if (!chosen.empty()) return chosen;
  for (const char* name : {"test.accuracy", "train.loss"}) {
    const bool is_there =
        std::any_of(subjects.begin(), subjects.end(),
                    [name](const Subject& subject) { return subject.series.contains(name); });
    if (is_there) return {name};
  }
  const std::set<std::string> names = ResultsOf(subjects);
  if (names.empty()) return {};
  return {*names.begin()};
}

void DrawCurves(const Context& context, const std::vector<Subject>& subjects,
                const std::string& metric) {
  std::vector<output::Curve> curves;
  for (const Subject& subject : subjects) {
    output::Curve curve;
    curve.label = absl::StrCat(subject.id(), "  ", subject.job.resolved_spec().name());
    const auto found = subject.series.find(metric);
    if (found != subject.series.end()) {
      for (const v1::MetricPoint& point : found->second.points()) {
        curve.points.push_back({static_cast<double>(point.step()), point.value()});
      }
    }
    if (curve.points.empty()) absl::StrAppend(&curve.label, "  (no values)");
    curves.push_back(std::move(curve));
  }
  output::PlotOptions plot;
  plot.width = std::min(context.terminal.width, 100);
  plot.unicode = context.terminal.unicode;
  context.out << output::RenderCurves(metric, curves, plot, context.terminal);
}

nlohmann::ordered_json JsonOf(const std::optional<double>& number) {
  if (!number.has_value() || !std::isfinite(*number)) return nullptr;
  return *number;
}

std::string ComparisonJson(const std::vector<Subject>& subjects, std::optional<int> at) {
  nlohmann::ordered_json json;
  json["jobs"] = nlohmann::ordered_json::array();
  json["spec"] = nlohmann::ordered_json::object();
  json["metrics"] = nlohmann::ordered_json::object();
  for (const Subject& subject : subjects) {
    nlohmann::ordered_json job;
    job["name"] = subject.job.name();
    job["title"] = subject.job.resolved_spec().name();
    job["state"] = output::StateText(subject.job.state());
    job["device_hours"] = DeviceHours(subject.job);
    job["attempts"] = subject.job.attempt();
    json["jobs"].push_back(std::move(job));
  }
  for (const auto& [path, values] : DifferingFields(subjects)) {
    for (const std::string& value : values) {
      const auto parsed = nlohmann::ordered_json::parse(value, nullptr, /*exceptions=*/false);
      json["spec"][path].push_back(parsed.is_discarded() ? nlohmann::ordered_json() : parsed);
    }
  }
  for (const std::string& name : ResultsOf(subjects)) {
    for (const Subject& subject : subjects) {
      const SeriesSummary summary = SummarizeSeries(name, subject, at);
      nlohmann::ordered_json values;
      values["last"] = JsonOf(summary.last);
      values["best"] = JsonOf(summary.best);
      if (summary.best.has_value()) values["best_step"] = summary.best_step;
      json["metrics"][name].push_back(std::move(values));
    }
  }
  return json.dump(2);
}

Result Compare(const Context& context, const CompareOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  if (names.size() < 2 || names.size() > kComparedJobsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        Counted(names.size(), "job"), " cannot be compared; name 2 to ", kComparedJobsMax));
  }
  if (context.options.format == Format::kName) {
    for (const std::string& name : names) context.out << name << "\n";
    return link::kOk;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<Subject> subjects, FetchSubjects(*link, names));
  if (!context.options.IsTable()) {
    const std::string json = ComparisonJson(subjects, options.at);
    context.out << (context.options.format == Format::kYaml ? output::JsonToYaml(json)
                                                            : json + "\n")
                << std::flush;
    return link::kOk;
  }
  PrintSpecs(context, subjects);
  PrintCodeChanges(context, *link, subjects);
  PrintResults(context, subjects, options.at);
  PrintCosts(context, subjects);
  for (const std::string& metric : DrawnMetrics(subjects, options.metrics)) {
    DrawCurves(context, subjects, metric);
  }
  context.out << std::flush;
  return link::kOk;
}

}  // namespace

void AddCompare(VerbTable& verbs) {
  verbs.Add<CompareOptions>(
      "compare", "Put jobs side by side: specs, metrics, costs, curves",
      "12 15 20\n"
      "  trainyard compare 12-16 --metric train.loss --at 1000",
      [](client::Flags& flags, CompareOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required();
        flags.Repeated("--metric", options.metrics,
                       "Draw this metric (test.accuracy, or else train.loss); may be repeated");
        flags.Value("--at", options.at, "Show the metrics as they were at this step")
            .Range(0, INT32_MAX);
      },
      Compare);
}

}  // namespace trainyard::commands
