// logs prints what the ranks wrote.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/commands/log_stream.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct LogsOptions {
  std::string job;
  bool follow = false;
  int attempt = 0;          // 0 means the newest
  int rank = -1;            // -1 means all ranks
  int64_t tail_lines = -1;  // -1 means all lines
};

// Lines are rarely longer than this; --tail fetches this many bytes for each line.
constexpr int64_t kTailBytesPerLine = 1024;

Result Logs(const Context& context, const LogsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::string name = options.job;
  v1::GetJobRequest get;
  if (const auto attempt = ParseAttemptName(name); attempt.ok()) {
    get.set_name(JobName(attempt->job));
  } else {
    TY_ASSIGN_OR_RETURN(name, ResolveOne(*link, name));
    get.set_name(name);
    if (options.attempt > 0) name = absl::StrCat(name, "/attempts/", options.attempt);
  }
  TY_ASSIGN_OR_RETURN(const v1::Job job, link->Call(&v1::JobService::Stub::GetJob, get));
  if (job.attempt() == 0 && !options.follow) {
    context.Say(absl::StrCat(job.name(), " is ", output::StateText(job.state()),
                             " and has not run yet, so there is no log"));
    return link::kOk;
  }
  if (const std::string deleted = output::DeletedText(job, v1::JOB_PART_LOGS); !deleted.empty()) {
    context.Say(deleted);
    return link::kOk;
  }
  const int ranks = job.placement_size();
  // The other attempts of an elastic job may have had more ranks.
  const bool is_newest = !ParseAttemptName(name).ok();
  if (is_newest && options.rank >= ranks && ranks > 0) {
    return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                     absl::StrCat(job.name(), " has no rank ", options.rank, "; it has ",
                                  ranks == 1 ? "rank 0 alone" : absl::StrCat("0 to ", ranks - 1)));
  }
  const bool with_rank = options.rank < 0 && job.resolved_spec().devices().count() > 1;
  LogPrinter printer(context, with_rank);
  v1::TailLogsRequest request;
  request.set_name(name);
  if (options.rank >= 0) request.set_rank(options.rank);
  if (options.tail_lines >= 0 && job.attempt() > 0) {
    v1::TailLogsRequest tail = request;
    tail.set_offset(-std::max<int64_t>(options.tail_lines, 1) * kTailBytesPerLine);
    printer.Hold(options.tail_lines);
    TY_ASSIGN_OR_RETURN(const link::ExitCode code, ReadLogs(context, *link, tail, printer));
    printer.Release();
    printer.Flush();
    if (code != link::kOk || !options.follow) return code;
    request.set_offset(printer.ResumeOffset());
  }
  request.set_follow(options.follow);
  return ReadLogs(context, *link, request, printer);
}

}  // namespace

void AddLogs(VerbTable& verbs) {
  verbs.Add<LogsOptions>(
      "logs", "Show what the ranks wrote", "last --rank 0 -f",
      [](client::Flags& flags, LogsOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Switch("-f,--follow", options.follow,
                     "Keep printing text as it comes, until the job ends");
        flags.Value("--attempt", options.attempt, "This attempt, in place of the newest")
            .Positive();
        flags.Value("--rank", options.rank, "Only this rank").Range(0, 4095);
        flags.Value("--tail", options.tail_lines, "Only this many last lines of each rank")
            .Range(0, 1'000'000);
      },
      Logs);
}

}  // namespace trainyard::commands
