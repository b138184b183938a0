// One stream tells how the job goes and another one what it prints. Both end some moments after the
// job, so the following ends when they have.
#include "client/commands/program_follow.h"

#include <istream>
#include <optional>
#include <ostream>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/follow.h"
#include "client/commands/log_stream.h"
#include "client/link/follower.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kUpdateWait = absl::Milliseconds(100);
// The last lines of a job arrive some moments after its end.
constexpr absl::Duration kLogsEndTimeout = absl::Seconds(10);

// Users want one of these after Ctrl-C.
enum class Wish { kDetach, kCancel, kGoOn };

// Returns the code with which the following of a program ends that has not succeeded: its own, that
// of shells if it could not be executed, and 8 if the job came to its end otherwise.
link::ExitCode CodeOf(const v1::Failure& failure) {
  constexpr int kExitCannotExecute = 127;
  constexpr int kExitOfSignals = 128;
  const int code = failure.exit_code();
  const bool is_own = failure.reason() == "PROGRAM_FAILED" || code > kExitOfSignals;
  if (is_own && code > 0) return static_cast<link::ExitCode>(code);
  return failure.reason() == "PROGRAM_NOT_STARTED" &&
                 absl::StrContains(failure.message(), "cannot execute")
             ? static_cast<link::ExitCode>(kExitCannotExecute)
             : link::kJobEndedBadly;
}

class ProgramFollower {
 public:
  ProgramFollower(const Context& context, link::ServerLink& link, const v1::Job& job)
      : context_(context),
        link_(link),
        name_(job.name()),
        reporter_(context),
        printer_(context, /*with_rank=*/job.resolved_spec().devices().count() > 1,
                 /*is_raw=*/true) {}

  Result Run();

 private:
  // Follows until the job has ended, or until Ctrl-C. Returns false if nobody reads the output any
  // more, as `head` does once it has its lines.
  absl::StatusOr<bool> FollowOn();
  Wish Ask();
  absl::Status Cancel();
  void TellDetached();
  Result TellEnd();

  const Context& context_;
  link::ServerLink& link_;
  const std::string name_;
  v1::Job job_;
  JobReporter reporter_;
  LogPrinter printer_;
};

absl::StatusOr<bool> ProgramFollower::FollowOn() {
  link::Follower follower(link_, context_.clock, context_.rng,
                          {.names = {name_},
                           .logs_of = name_,
                           .logs_attempt = printer_.attempt(),
                           .logs_offset = printer_.ResumeOffset()});
  bool has_logs_end = false;
  absl::Duration ended_at = absl::InfiniteDuration();
  while (!context_.interrupt.triggered()) {
    const absl::Duration now = context_.clock.Uptime();
    if (output::HasEnded(job_)) {
      if (ended_at == absl::InfiniteDuration()) ended_at = now;
      // A held job may be queued again, so the stream of its logs stays open.
      if (has_logs_end || output::IsHeld(job_) || now - ended_at > kLogsEndTimeout) {
        break;
      }
    } else {
      ended_at = absl::InfiniteDuration();
    }
    const auto update = follower.Next(kUpdateWait);
    if (!update.has_value()) continue;
    if (const auto* end = std::get_if<link::End>(&*update)) {
      if (!context_.interrupt.triggered()) return end->status;
      break;
    }
    if (const auto* job = std::get_if<v1::Job>(&*update)) {
      job_ = *job;
      // The end is told after the last line of the program.
      if (!output::HasEnded(job_)) reporter_.OnJob(job_);
    }
    if (const auto* chunk = std::get_if<v1::TailLogsResponse>(&*update)) {
      printer_.OnChunk(*chunk);
      if (!context_.raw_out.good()) {
        context_.raw_out.clear();  // so that it is not told as an error once more
        return false;
      }
      // Text that comes after the end of the job keeps the following alive.
      if (ended_at != absl::InfiniteDuration()) ended_at = now;
    }
    if (const auto* connection = std::get_if<link::Connection>(&*update)) {
      reporter_.OnConnection(connection->is_back);
    }
    has_logs_end |= std::holds_alternative<link::LogsEnd>(*update);
  }
  printer_.Flush();
  return true;
}

Wish ProgramFollower::Ask() {
  if (!context_.in_is_terminal) return Wish::kDetach;
  context_.err << "\n[d] leave " << name_
               << " running and stop following it, [c] cancel it, [Enter] go on? " << std::flush;
  std::string answer;
  context_.interrupt.AllowExit(true);
  const bool is_answered = static_cast<bool>(std::getline(context_.in, answer));
  context_.interrupt.AllowExit(false);
  if (!is_answered) return Wish::kDetach;
  switch (answer.empty() ? ' ' : absl::ascii_tolower(static_cast<unsigned char>(answer[0]))) {
    case 'd':
      return Wish::kDetach;
    case 'c':
      return Wish::kCancel;
    default:
      return Wish::kGoOn;
  }
}

absl::Status ProgramFollower::Cancel() {
  v1::CancelJobRequest request;
  request.set_name(name_);
  request.set_reason("Ctrl-C");
  return link_.Call(&v1::JobService::Stub::CancelJob, request).status();
}

void ProgramFollower::TellDetached() {
  const std::string id = output::ShortName(name_);
  context_.err << "\nstopped following; " << name_ << " continues\n  trainyard logs -f " << id
               << "   shows what it prints\n  trainyard cancel " << id << "    stops it\n"
               << std::flush;
}

Result ProgramFollower::TellEnd() {
  if (job_.state() == v1::JOB_STATE_SUCCEEDED) {
    const std::string took = TookText(job_);
    context_.Say(absl::StrCat(name_, " succeeded", took.empty() ? "" : " after ", took));
    return link::kOk;
  }
  const std::string id = output::ShortName(name_);
  const bool has_failed = job_.state() == v1::JOB_STATE_FAILED;
  if (has_failed || output::IsHeld(job_)) {
    context_.Say(absl::StrCat(name_, has_failed ? " failed " : " is held for a person ",
                              FailureText(job_.failure()), "\n  trainyard logs ", id,
                              "            what it printed\n  trainyard show ", id,
                              " --events   its history"));
  } else {
    context_.Say(absl::StrCat(name_, " is ", output::StateText(job_.state())));
  }
  return has_failed ? CodeOf(job_.failure()) : link::kJobEndedBadly;
}

Result ProgramFollower::Run() {
  while (true) {
    const absl::StatusOr<bool> is_read = FollowOn();
    TY_RETURN_IF_ERROR(is_read.status());
    if (!*is_read) {
      TellDetached();
      return link::kFailed;
    }
    if (!context_.interrupt.triggered()) return TellEnd();
    const Wish wish = Ask();
    if (wish == Wish::kDetach) {
      TellDetached();
      return link::kInterrupted;
    }
    context_.interrupt.Rearm();
    if (wish == Wish::kCancel) TY_RETURN_IF_ERROR(Cancel());
  }
}

}  // namespace

Result FollowProgram(const Context& context, link::ServerLink& link, const v1::Job& job) {
  return ProgramFollower(context, link, job).Run();
}

}  // namespace trainyard::commands
