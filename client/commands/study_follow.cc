// Follows many jobs at once, with a line for each.
#include "client/commands/study_follow.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/batch_study_specs.h"
#include "client/commands/follow.h"
#include "client/link/follower.h"
#include "client/output/progress.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/escape.h"
#include "common/base/status_macros.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kStudyDrawInterval = absl::Milliseconds(250);
// The points that tell how long the steps took; those of the target are all read.
constexpr int kClockPointsMax = 2000;

std::string TrainingText(const v1::Job& job) {
  return absl::StrCat(StudyOptimizerOf(job.resolved_spec()), ", batch ",
                      job.resolved_spec().train().global_batch(), ": ", job.name());
}

// Shows the states of the jobs. It borrows the context.
class StudyReporter {
 public:
  StudyReporter(const Context& context, const std::vector<v1::Job>& jobs)
      : context_(context), jobs_(jobs) {}

  void OnJob(const v1::Job& job) {
    const auto known = std::find_if(jobs_.begin(), jobs_.end(),
                                    [&](const v1::Job& one) { return one.name() == job.name(); });
    if (known == jobs_.end()) return;
    *known = job;
    is_dirty_ = true;
    const auto [told, is_first] = told_.emplace(job.name(), job.state());
    const bool is_news = is_first || told->second != job.state();
    told->second = job.state();
    if (is_news && !draws()) {
      context_.Say(absl::StrCat(TrainingText(job), " is ", output::StateText(job.state())));
    }
  }

  void OnConnection(bool is_back) {
    Clear();
    context_.Say(is_back ? "the server is back; following continues"
                         : "the connection to the server is lost; the jobs keep running, and "
                           "following continues when the server is back (Ctrl-C to stop "
                           "following)");
  }

  // Draws what has changed if enough time has passed since the last drawing.
  void Tick() {
    const absl::Duration now = context_.clock.Uptime();
    if (!draws() || !is_dirty_ || now - drawn_ < kStudyDrawInterval) return;
    is_dirty_ = false;
    drawn_ = now;
    Draw();
  }

  // Removes the table, so that other text can stand in its place.
  void Clear() {
    if (lines_ == 0) return;
    context_.err << kEscape << "[" << lines_ << "A" << kEscape << "[J" << std::flush;
    lines_ = 0;
  }

  bool HaveAllEnded() const { return std::all_of(jobs_.begin(), jobs_.end(), output::HasEnded); }
  const std::vector<v1::Job>& jobs() const { return jobs_; }

 private:
  bool draws() const { return context_.terminal.err_is_terminal && !context_.options.quiet; }

  void Draw() {
    using Align = output::Table::Align;
    output::Table table({{"OPTIMIZER", Align::kLeft},
                         {"BATCH", Align::kRight},
                         {"JOB", Align::kRight},
                         {"STATE", Align::kLeft},
                         {"", Align::kLeft}});
    for (const v1::Job& job : jobs_) {
      const bool is_running = job.state() == v1::JOB_STATE_RUNNING;
      table.AddRow({StudyOptimizerOf(job.resolved_spec()),
                    absl::StrCat(job.resolved_spec().train().global_batch()),
                    output::ShortName(job.name()), output::StateText(job.state()),
                    is_running ? output::ProgressTextLine(output::ViewOf(job.progress()))
                               : absl::StrJoin(job.queue_reasons(), "; ")});
    }
    const output::Terminal terminal = output::Resized(context_.terminal);
    const std::string text = table.Render();
    Clear();
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
      // More lines than the terminal has cannot be drawn over.
      if (lines_ + 2 > terminal.height) break;
      context_.err << output::Fitted(line, terminal.width - 1) << "\n";
      ++lines_;
    }
    context_.err << std::flush;
  }

  const Context& context_;
  std::vector<v1::Job> jobs_;
  std::map<std::string, v1::JobState> told_;  // the state that was told last, by job
  bool is_dirty_ = true;
  absl::Duration drawn_ = -absl::InfiniteDuration();
  int lines_ = 0;  // that are drawn
};

absl::Status TakeMetrics(link::ServerLink& link, const std::string& job,
                         const std::set<std::string>& metrics, int points_max,
                         StudySeries& series) {
  v1::QueryMetricsRequest query;
  query.set_name(job);
  for (const std::string& metric : metrics) query.add_metrics(metric);
  query.set_max_points(points_max);
  TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse answer,
                      link.Call(&v1::JobService::Stub::QueryMetrics, query));
  for (const v1::MetricSeries& one : answer.series()) {
    for (const v1::MetricPoint& point : one.points()) {
      series[one.name()].push_back(
          {point.step(), point.value(),
           static_cast<double>(point.time().seconds()) + point.time().nanos() * 1e-9,
           point.attempt()});
    }
  }
  return absl::OkStatus();
}

double StepsPerEpochOf(const v1::Job& job) {
  const int64_t known = spec::StepsPerEpoch(job.resolved_spec());
  if (known > 0) return static_cast<double>(known);
  // The job has counted its data when it trained.
  const v1::Progress& progress = job.progress();
  if (!job.resolved_spec().train().has_epochs() || progress.epochs() <= 0) return 0;
  return static_cast<double>(progress.total_steps()) / static_cast<double>(progress.epochs());
}

std::string WhyFailed(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return "";
  const std::string why = job.has_failure() ? FailureText(job.failure()) : "";
  return absl::StrCat(output::StateText(job.state()), why.empty() ? "" : " ", why);
}

}  // namespace

absl::StatusOr<std::optional<std::vector<v1::Job>>> FollowStudy(const Context& context,
                                                                link::ServerLink& link,
                                                                const std::vector<v1::Job>& jobs) {
  StudyReporter reporter(context, jobs);
  std::vector<std::string> names;
  for (const v1::Job& job : jobs) names.push_back(job.name());
  link::Follower follower(link, context.clock, context.rng, {.names = names, .metrics_of = ""});
  while (!reporter.HaveAllEnded()) {
    reporter.Tick();
    if (context.interrupt.triggered()) {
      reporter.Clear();
      return std::optional<std::vector<v1::Job>>();
    }
    const auto update = follower.Next(absl::Milliseconds(100));
    if (!update.has_value()) continue;
    if (const auto* end = std::get_if<link::End>(&*update)) {
      // Ctrl-C ends the stream too, and the next round sees it.
      if (context.interrupt.triggered()) continue;
      reporter.Clear();
      return end->status;
    }
    if (const auto* job = std::get_if<v1::Job>(&*update)) reporter.OnJob(*job);
    if (const auto* connection = std::get_if<link::Connection>(&*update)) {
      reporter.OnConnection(connection->is_back);
    }
  }
  reporter.Clear();
  return std::optional<std::vector<v1::Job>>(reporter.jobs());
}

absl::StatusOr<StudyRun> FetchStudyRun(link::ServerLink& link, const v1::Job& job,
                                       const std::string& metric) {
  StudyRun run;
  run.job = job.name();
  run.optimizer = StudyOptimizerOf(job.resolved_spec());
  run.batch = job.resolved_spec().train().global_batch();
  run.lr = StudyRateOf(job.resolved_spec());
  run.state = output::StateText(job.state());
  run.failure = WhyFailed(job);
  run.steps_per_epoch = StepsPerEpochOf(job);
  std::set<std::string> whole = {"test.accuracy", "test.loss"};
  if (!metric.empty()) whole.insert(metric);
  TY_RETURN_IF_ERROR(TakeMetrics(link, job.name(), whole, 0, run.series));
  std::set<std::string> thinned = {"train.loss", "samples_per_s"};
  thinned.erase(metric);
  TY_RETURN_IF_ERROR(TakeMetrics(link, job.name(), thinned, kClockPointsMax, run.series));
  return run;
}

}  // namespace trainyard::commands
