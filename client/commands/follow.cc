// Follows one job and prints its changes. The job and its metrics come over two streams in any
// order, so an evaluation is printed only when all of its values are here.
#include "client/commands/follow.h"

#include <map>
#include <ostream>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/link/follower.h"
#include "client/output/plot.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// People cannot see more than about ten pictures a second.
constexpr absl::Duration kDrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kLineInterval = absl::Seconds(2);
// The last metrics of a job arrive some moments after its end.
constexpr absl::Duration kMetricsEndTimeout = absl::Seconds(5);
constexpr int kPlotPoints = 600;

std::string MetricText(const v1::Job& job) {
  std::vector<std::string> parts;
  const auto accuracy = job.final_metrics().find("test.accuracy");
  if (accuracy != job.final_metrics().end()) {
    parts.push_back("test accuracy " + output::PercentText(accuracy->second));
  }
  const auto top5 = job.final_metrics().find("test.top5");
  if (top5 != job.final_metrics().end()) {
    parts.push_back("top-5 " + output::PercentText(top5->second));
  }
  const auto loss = job.final_metrics().find("test.loss");
  if (loss != job.final_metrics().end()) {
    parts.push_back("test loss " + output::NumberText(loss->second));
  }
  const auto perplexity = job.final_metrics().find("test.perplexity");
  if (perplexity != job.final_metrics().end()) {
    parts.push_back("test perplexity " + output::NumberText(perplexity->second));
  }
  return absl::StrJoin(parts, ", ");
}

void TellCurve(const Context& context, link::ServerLink& link, const v1::Job& job) {
  v1::QueryMetricsRequest request;
  request.set_name(job.name());
  request.add_metrics("train.loss");
  request.set_max_points(kPlotPoints);
  request.set_sampling(v1::METRIC_SAMPLING_EXTREMES);
  const auto response = link.Call(&v1::JobService::Stub::QueryMetrics, request);
  if (!response.ok() || response->series().empty()) return;
  std::vector<output::Point> points;
  for (const v1::MetricPoint& point : response->series(0).points()) {
    points.push_back({static_cast<double>(point.step()), point.value()});
  }
  if (points.size() < 2) return;
  output::PlotOptions options;
  options.width = std::min(context.terminal.width, 100);
  options.unicode = context.terminal.unicode;
  context.err << "\n" << output::RenderPlot("train.loss", points, options);
}

std::string CheckpointsText(link::ServerLink& link, const v1::Job& job) {
  v1::ListCheckpointsRequest request;
  request.set_parent(job.name());
  const auto response = link.Call(&v1::CheckpointService::Stub::ListCheckpoints, request);
  if (!response.ok() || response->checkpoints().empty()) return "";
  std::vector<std::string> steps;
  for (const v1::Checkpoint& checkpoint : response->checkpoints()) {
    steps.push_back(absl::StrCat(checkpoint.step(), checkpoint.is_best() ? " (best)" : ""));
  }
  return absl::StrJoin(steps, ", ");
}

// Returns where a later attempt begins, since it may repeat steps that were seen already.
std::string OriginText(const v1::Job& job) {
  if (job.attempt() <= 1) return "";
  const int64_t step = job.progress().checkpoint_step();
  return step > 0 ? absl::StrCat(", from the checkpoint of step ", step)
                  : ", from the beginning, since there is no checkpoint";
}

}  // namespace

std::string FailureText(const v1::Failure& failure) {
  std::string kind = absl::AsciiStrToLower(output::FailureClassText(failure.failure_class()));
  if (!failure.reason().empty()) absl::StrAppend(&kind, ", ", failure.reason());
  return absl::StrCat("(", kind, "): ", failure.message());
}

std::string TookText(const v1::Job& job) {
  if (!job.has_start_time() || !job.has_end_time()) return "";
  return DurationText(output::ToTime(job.end_time()) - output::ToTime(job.start_time()));
}

std::string PlacementText(const v1::Job& job) {
  std::map<std::string, std::vector<std::string>> devices;
  for (const v1::RankPlacement& rank : job.placement()) {
    devices[output::ShortName(rank.worker())].push_back(output::RankPlaceText(rank));
  }
  return absl::StrJoin(devices, "; ", [](std::string* out, const auto& worker) {
    absl::StrAppend(out, worker.first, ": ", absl::StrJoin(worker.second, ", "));
  });
}

void JobReporter::Clear() {
  if (is_drawn_) context_.err << output::kLineStart << output::kClearRest << std::flush;
  is_drawn_ = false;
}

void JobReporter::Tell(absl::string_view text) {
  if (context_.options.quiet) return;
  Clear();
  context_.err << text << "\n" << std::flush;
  is_dirty_ = true;
}

void JobReporter::OnJob(const v1::Job& job) {
  const v1::Job before = std::move(job_);
  job_ = job;
  const output::ProgressView progress = output::ViewOf(job.progress());
  const auto loss = view_.loss;
  const auto accuracy = view_.accuracy;
  const int64_t step = view_.step;
  view_ = progress;
  view_.loss = loss;
  view_.accuracy = accuracy;
  view_.is_test_accuracy = has_test_accuracy_;
  // Points may be ahead of the job's record, and a new attempt begins at an earlier step.
  if (before.attempt() == job.attempt()) view_.step = std::max(view_.step, step);
  is_dirty_ = true;
  if (before.state() != job.state()) TellState(before);
  TellQueue(before);
}

void JobReporter::TellState(const v1::Job& before) {
  const std::string state = output::StateText(job_.state());
  const std::string styled = context_.terminal.Style(output::StateStyle(job_.state()), state);
  const std::string name = job_.name();
  switch (job_.state()) {
    case v1::JOB_STATE_QUEUED:
      if (job_.has_failure() && before.attempt() > 0) {
        Tell(absl::StrCat(name, " is ", styled, " again: attempt ", before.attempt(), " failed ",
                          FailureText(job_.failure())));
        return;
      }
      break;
    case v1::JOB_STATE_STARTING:
      Tell(absl::StrCat(name, " is ", styled, ": attempt ", job_.attempt(), " on ",
                        PlacementText(job_), OriginText(job_)));
      return;
    case v1::JOB_STATE_STOPPING: {
      const std::string reason = v1::StopReason_Name(job_.stop_reason());
      Tell(absl::StrCat(name, " is ", styled, " (",
                        absl::AsciiStrToLower(reason.substr(sizeof("STOP_REASON_") - 1)), ")"));
      return;
    }
    case v1::JOB_STATE_SUSPENDED:
      if (output::IsHeld(job_)) break;  // the text about the end says why
      Tell(absl::StrCat(name, " is ", styled, "; `trainyard resume ", output::ShortName(name),
                        "` queues it again"));
      return;
    default:
      break;
  }
  Tell(absl::StrCat(name, " is ", styled));
}

void JobReporter::TellQueue(const v1::Job& before) {
  const bool waits = job_.state() == v1::JOB_STATE_QUEUED;
  const std::vector<std::string> now(job_.queue_reasons().begin(), job_.queue_reasons().end());
  const std::vector<std::string> was(before.queue_reasons().begin(), before.queue_reasons().end());
  if (now == was && before.state() == job_.state()) return;
  for (const std::string& reason : now) Tell((waits ? "  waits: " : "  ") + reason);
}

void JobReporter::OnPoints(const std::vector<v1::MetricPoint>& points) {
  for (const v1::MetricPoint& point : points) {
    if (point.name() == "train.loss") {
      view_.loss = point.value();
      view_.step = point.step();
    } else if (point.name() == "train.accuracy" && !has_test_accuracy_) {
      view_.accuracy = point.value();
    } else if (point.name() == "test.loss" || point.name() == "test.accuracy") {
      OnEvaluation(point);
    }
    is_dirty_ = true;
  }
}

// An evaluation is printed when both of its numbers are here, whichever came first.
void JobReporter::OnEvaluation(const v1::MetricPoint& point) {
  if (evaluation_.step != point.step()) evaluation_ = {.step = point.step()};
  if (point.name() == "test.accuracy") {
    view_.is_test_accuracy = has_test_accuracy_ = true;
    view_.accuracy = evaluation_.accuracy = point.value();
  } else {
    evaluation_.loss = point.value();
  }
  if (!evaluation_.accuracy.has_value() || !evaluation_.loss.has_value()) return;
  Tell(absl::StrCat("step ", point.step(), ": test accuracy ",
                    output::PercentText(*evaluation_.accuracy), ", test loss ",
                    output::NumberText(*evaluation_.loss)));
}

void JobReporter::OnConnection(bool is_back) {
  Tell(is_back ? "the server is back; following continues"
               : "the connection to the server is lost; the job keeps running, and following "
                 "continues when the server is back (Ctrl-C to stop following)");
}

void JobReporter::Tick() {
  const bool is_shown =
      job_.state() == v1::JOB_STATE_RUNNING || job_.state() == v1::JOB_STATE_STOPPING;
  if (!is_shown || !is_dirty_ || context_.options.quiet || view_.total_steps <= 0) return;
  const absl::Duration now = context_.clock.Uptime();
  if (context_.terminal.err_is_terminal) {
    if (now - last_draw_ < kDrawInterval) return;
    context_.err << output::kLineStart
                 << output::ProgressBarLine(view_, output::Resized(context_.terminal))
                 << output::kClearRest << std::flush;
    is_drawn_ = true;
  } else {
    const bool is_new_epoch = view_.epoch != last_epoch_;
    if (view_.step == last_step_ || (now - last_draw_ < kLineInterval && !is_new_epoch)) return;
    context_.err << output::ProgressTextLine(view_) << "\n" << std::flush;
  }
  last_draw_ = now;
  last_epoch_ = view_.epoch;
  last_step_ = view_.step;
  is_dirty_ = false;
}

void TellEnd(const Context& context, link::ServerLink& link, const v1::Job& job) {
  if (context.options.quiet) return;
  const std::string id = output::ShortName(job.name());
  if (job.progress().step() > 1) TellCurve(context, link, job);
  const std::string took = TookText(job);
  const std::string metrics = MetricText(job);
  const output::Terminal& terminal = context.terminal;
  std::string line = absl::StrCat(
      "\n", job.name(), " ",
      terminal.Style(output::StateStyle(job.state()),
                     absl::AsciiStrToLower(output::StateText(job.state()))),
      took.empty() ? "" : absl::StrCat(" after ", took), metrics.empty() ? "" : ": ", metrics);
  context.err << line << "\n";
  if (output::IsHeld(job)) {
    context.err << "  held for a person " << FailureText(job.failure()) << "\n";
  } else if (job.state() == v1::JOB_STATE_FAILED) {
    context.err << "  failed " << FailureText(job.failure()) << "\n";
  }
  const std::string checkpoints = CheckpointsText(link, job);
  if (!checkpoints.empty()) context.err << "  checkpoints at steps " << checkpoints << "\n";
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    context.err << "next:\n";
    if (!checkpoints.empty()) {
      context.err << "  trainyard checkpoints get " << id << "     the weights, for PyTorch too\n";
    }
    context.err << "  trainyard metrics " << id << "             all curves\n"
                << "  trainyard clone " << id << " --set PATH=VALUE --follow\n";
  } else {
    context.err << "next:\n";
    if (job.attempt() > 0) {
      context.err << "  trainyard logs " << id << "                what the ranks wrote\n";
    }
    context.err << "  trainyard show " << id << " --events       its history\n";
    if (output::IsHeld(job)) {
      context.err << "  trainyard resume " << id << "              queues it again\n"
                  << "  trainyard cancel " << id << "              gives it up\n";
    }
  }
  context.err << std::flush;
}

Result FollowJob(const Context& context, link::ServerLink& link, const std::string& name) {
  JobReporter reporter(context);
  v1::Job job;
  {
    link::Follower follower(link, context.clock, context.rng,
                            {.names = {name}, .metrics_of = name});
    bool has_metrics_end = false;
    absl::Duration ended_at = absl::InfiniteDuration();
    while (true) {
      if (context.interrupt.triggered()) {
        reporter.Clear();
        const std::string id = output::ShortName(name);
        context.err << "\nstopped following; " << name << " continues\n  trainyard watch " << id
                    << "     follows it again\n  trainyard cancel " << id << "    stops it\n"
                    << std::flush;
        return link::kInterrupted;
      }
      // A held job waits for a person, but the stream of its metrics stays open.
      if (output::IsHeld(reporter.job())) break;
      const bool is_final = output::IsFinal(reporter.job().state());
      const absl::Duration now = context.clock.Uptime();
      if (is_final && ended_at == absl::InfiniteDuration()) ended_at = now;
      if (is_final && (has_metrics_end || now - ended_at > kMetricsEndTimeout)) break;
      auto update = follower.Next(kDrawInterval);
      if (update.has_value()) {
        if (const auto* end = std::get_if<link::End>(&*update)) {
          reporter.Clear();
          if (context.interrupt.triggered()) continue;
          return end->status;
        }
        if (const auto* changed = std::get_if<v1::Job>(&*update)) reporter.OnJob(*changed);
        if (const auto* points = std::get_if<link::Points>(&*update)) {
          reporter.OnPoints(points->points);
        }
        if (const auto* connection = std::get_if<link::Connection>(&*update)) {
          reporter.OnConnection(connection->is_back);
        }
        has_metrics_end |= std::holds_alternative<link::MetricsEnd>(*update);
      }
      reporter.Tick();
    }
    reporter.Clear();
    job = reporter.job();
  }
  TellEnd(context, link, job);
  return job.state() == v1::JOB_STATE_SUCCEEDED ? link::kOk : link::kJobEndedBadly;
}

}  // namespace trainyard::commands
