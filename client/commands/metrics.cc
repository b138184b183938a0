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
#include "client/output/event_file.h"
#include "client/output/plot.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"

namespace trainyard::commands {
namespace {

struct MetricsOptions {
  std::vector<std::string> words;  // the job, then groups of metrics
  std::vector<std::string> metrics;
  bool follow = false;
  std::string tensorboard;  // a folder for event files
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

// The words of the command line: first jobs, then groups of metrics.
struct MetricWords {
  std::vector<std::string> jobs;
  std::vector<std::string> groups;
};

// Returns true if the word can only mean jobs: 12, 3-5, last. A name may also be a group of
// metrics.
bool IsJobNumber(const std::string& word) {
  const auto selections = ParseSelector(word);
  return selections.ok() && std::all_of(selections->begin(), selections->end(),
                                        [](const Selection& s) { return s.name.empty(); });
}

// The first word names jobs, whatever it looks like. A later one does if it can mean nothing else.
MetricWords SplitWords(const MetricsOptions& options) {
  MetricWords words;
  for (const std::string& word : options.words) {
    const bool is_job = words.jobs.empty() || (words.groups.empty() && IsJobNumber(word));
    (is_job ? words.jobs : words.groups).push_back(word);
  }
  return words;
}

// Asks for the names of all series, and returns those that --metric and the groups choose; all of
// them if nothing is chosen. Returns NOT_FOUND if the job has metrics, but none of these.
absl::StatusOr<std::vector<std::string>> ChosenNames(link::ServerLink& link,
                                                     const std::vector<std::string>& metrics,
                                                     const std::vector<std::string>& groups,
                                                     const std::string& job) {
  std::vector<std::string> names = metrics;
  if (groups.empty() && metrics.empty()) return names;
  v1::QueryMetricsRequest request;
  request.set_name(job);
  request.set_max_points(1);
  TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse all,
                      link.Call(&v1::JobService::Stub::QueryMetrics, request));
  if (all.series().empty()) return names;
  std::set<std::string> known_groups;
  std::vector<std::string> known;
  for (const v1::MetricSeries& series : all.series()) {
    if (IsMeant(series.name(), groups)) names.push_back(series.name());
    known.push_back(series.name());
    known_groups.insert(series.name().substr(0, series.name().find('.')));
  }
  for (const std::string& metric : metrics) {
    if (std::find(known.begin(), known.end(), metric) != known.end()) continue;
    return absl::NotFoundError(
        absl::StrCat(job, " has no metric '", metric, "'", spec::Suggestion(metric, known)));
  }
  if (names.size() == metrics.size() && !groups.empty()) {
    return absl::NotFoundError(absl::StrCat(job, " has no metrics '", absl::StrJoin(groups, "', '"),
                                            "'; it has ", absl::StrJoin(known_groups, ", ")));
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

// Draws the series that were chosen, or else those of the default. `of` follows the title.
void Draw(const Context& context, bool is_chosen, const v1::QueryMetricsResponse& response,
          absl::string_view of) {
  output::PlotOptions plot;
  plot.width = std::min(context.terminal.width, 100);
  plot.unicode = context.terminal.unicode;
  for (const v1::MetricSeries& series : response.series()) {
    if (!is_chosen && !IsDrawnByDefault(series.name())) continue;
    std::vector<output::Point> points;
    for (const v1::MetricPoint& point : series.points()) {
      points.push_back({static_cast<double>(point.step()), point.value()});
    }
    if (points.size() < 2) continue;
    context.out << output::RenderPlot(absl::StrCat(series.name(), of), points, plot) << "\n";
  }
}

std::vector<std::string> SummaryOf(const v1::MetricSeries& series) {
  const auto by_value = [](const v1::MetricPoint& a, const v1::MetricPoint& b) {
    return a.value() < b.value();
  };
  const auto [min, max] =
      std::minmax_element(series.points().begin(), series.points().end(), by_value);
  const v1::MetricPoint& last = *series.points().rbegin();
  double sum = 0;
  for (const v1::MetricPoint& point : series.points()) sum += point.value();
  const auto text = [&](double value) { return ValueText(series.name(), value); };
  return {series.name(),
          absl::StrCat(series.points_size()),
          text(sum / series.points_size()),
          text(series.points(0).value()),
          text(min->value()),
          text(max->value()),
          text(last.value()),
          absl::StrCat(last.step())};
}

// The series of one job.
struct JobSeries {
  std::string job;
  v1::QueryMetricsResponse response;
};

void PrintSummary(const Context& context, const std::vector<JobSeries>& jobs) {
  using output::Table;
  std::vector<Table::Column> columns;
  if (jobs.size() > 1) columns.push_back({"JOB", Table::Align::kRight});
  columns.insert(columns.end(), {{"METRIC"},
                                 {"POINTS", Table::Align::kRight},
                                 {"MEAN", Table::Align::kRight},
                                 {"FIRST", Table::Align::kRight},
                                 {"MIN", Table::Align::kRight},
                                 {"MAX", Table::Align::kRight},
                                 {"LAST", Table::Align::kRight},
                                 {"AT STEP", Table::Align::kRight}});
  Table table(std::move(columns));
  for (const JobSeries& job : jobs) {
    for (const v1::MetricSeries& series : job.response.series()) {
      if (series.points().empty()) continue;
      std::vector<std::string> row = SummaryOf(series);
      if (jobs.size() > 1) row.insert(row.begin(), output::ShortName(job.job));
      table.AddRow(std::move(row));
    }
  }
  context.out << table.Render();
}

// Prints points as they come, until the job has ended.
Result FollowPoints(const Context& context, link::ServerLink& link,
                    const std::vector<std::string>& wanted, const std::vector<std::string>& words,
                    const std::string& name) {
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

absl::StatusOr<JobSeries> FetchSeries(const Context& context, link::ServerLink& link,
                                      const MetricsOptions& options,
                                      const std::vector<std::string>& groups,
                                      const std::string& job) {
  v1::QueryMetricsRequest request;
  request.set_name(job);
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ChosenNames(link, options.metrics, groups, job));
  for (const std::string& metric : names) request.add_metrics(metric);
  // Data formats get all points. A plot can use no more of them than it has columns.
  if (context.options.IsTable() && options.tensorboard.empty()) {
    request.set_max_points(names.empty() ? kPlotPoints : kChosenPoints);
    request.set_sampling(v1::METRIC_SAMPLING_EXTREMES);
  }
  TY_ASSIGN_OR_RETURN(v1::QueryMetricsResponse response,
                      link.Call(&v1::JobService::Stub::QueryMetrics, request));
  return JobSeries{job, std::move(response)};
}

// Writes DIR/JOB/events.out.tfevents.TIME.trainyard, so that TensorBoard shows each job as a run.
// The files replace those of an earlier call.
absl::Status WriteEventFile(const Context& context, const JobSeries& job,
                            const std::string& folder) {
  const std::string run = JoinPath(folder, absl::StrCat("job-", output::ShortName(job.job)));
  TY_RETURN_IF_ERROR(MakeDirectories(run));
  absl::Time begin = context.clock.Now();
  std::string records;
  for (const v1::MetricSeries& series : job.response.series()) {
    for (const v1::MetricPoint& point : series.points()) {
      begin = std::min(begin, output::ToTime(point.time()));
      records += output::EventRecord(series.name(), point);
    }
  }
  const std::string path =
      JoinPath(run, absl::StrCat("events.out.tfevents.", absl::ToUnixSeconds(begin), ".trainyard"));
  TY_RETURN_IF_ERROR(ReplaceFile(
      path, absl::StrCat(output::EventFileHead(absl::ToDoubleSeconds(begin - absl::UnixEpoch())),
                         records)));
  context.Say(absl::StrCat("wrote ", path));
  return absl::OkStatus();
}

// Prints the series of one job in the format that the user chose. Returns false for a table.
bool PrintSeries(const Context& context, const v1::QueryMetricsResponse& response) {
  if (context.options.format == Format::kCsv) {
    std::vector<const google::protobuf::Message*> points;
    for (const v1::MetricSeries& series : response.series()) {
      for (const v1::MetricPoint& point : series.points()) points.push_back(&point);
    }
    return PrintList(context, points, {});
  }
  if (context.options.format != Format::kJsonLines) {
    return PrintResources(context, response.series());
  }
  for (const v1::MetricSeries& series : response.series()) {
    for (const v1::MetricPoint& point : series.points()) PrintList(context, {&point}, {""});
  }
  return true;
}

Result Metrics(const Context& context, const MetricsOptions& options) {
  const Format format = context.options.format;
  if (options.follow &&
      (format == Format::kJson || format == Format::kYaml || format == Format::kCsv)) {
    return absl::InvalidArgumentError(
        "--follow has no end, and a JSON, YAML or CSV list needs one; use -o jsonl");
  }
  const MetricWords words = SplitWords(options);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, words.jobs));
  if (names.size() > 1 && (options.follow || !context.options.IsTable())) {
    return absl::InvalidArgumentError(absl::StrCat(
        names.size(), " jobs are named; --follow and -o json take the metrics of one at a time"));
  }
  if (options.follow) {
    return FollowPoints(context, *link, options.metrics, words.groups, names.front());
  }
  if (!options.tensorboard.empty()) {
    for (const std::string& name : names) {
      TY_ASSIGN_OR_RETURN(const JobSeries job,
                          FetchSeries(context, *link, options, words.groups, name));
      TY_RETURN_IF_ERROR(WriteEventFile(context, job, options.tensorboard));
    }
    return link::kOk;
  }
  const bool is_chosen = !options.metrics.empty() || !words.groups.empty();
  std::vector<JobSeries> jobs;
  for (const std::string& name : names) {
    TY_ASSIGN_OR_RETURN(JobSeries job, FetchSeries(context, *link, options, words.groups, name));
    if (PrintSeries(context, job.response)) return link::kOk;
    if (job.response.series().empty()) {
      v1::GetJobRequest get;
      get.set_name(name);
      TY_ASSIGN_OR_RETURN(const v1::Job known, link->Call(&v1::JobService::Stub::GetJob, get));
      const std::string deleted = output::DeletedText(known, v1::JOB_PART_METRICS);
      context.Say(deleted.empty() ? absl::StrCat(name, " has no metrics yet") : deleted);
      continue;
    }
    Draw(context, is_chosen, job.response, names.size() > 1 ? absl::StrCat(" of ", name) : "");
    jobs.push_back(std::move(job));
  }
  if (!jobs.empty()) PrintSummary(context, jobs);
  return link::kOk;
}

}  // namespace

void AddMetrics(VerbTable& verbs) {
  verbs.Add<MetricsOptions>(
      "metrics", "Draw or print the metrics of a job",
      "last --metric train.loss\n"
      "  trainyard metrics 12 15          the curves of two jobs, one after the other\n"
      "  trainyard metrics last comm      what communication costs, and how much is hidden\n"
      "  trainyard metrics last -o csv > points.csv\n"
      "  trainyard metrics 1-5 --tensorboard runs && tensorboard --logdir runs",
      [](client::Flags& flags, MetricsOptions& options) {
        flags
            .Words("JOB", options.words,
                   absl::StrCat(kSelectorHelp,
                                "; then words for groups of metrics: comm for comm.* and "
                                "compute.*, gpu for gpu.*"))
            .Required()
            .ShownAs("JOB ... [GROUP ...]");
        flags.Repeated("--metric", options.metrics, "Only this metric; may be repeated");
        const client::Flag follow =
            flags.Switch("-f,--follow", options.follow, "Print points as they come");
        flags
            .Value("--tensorboard", options.tensorboard,
                   "Write event files for TensorBoard into this folder, and draw nothing")
            .ShownAs("DIR")
            .Excludes(follow);
      },
      Metrics);
}

}  // namespace trainyard::commands
