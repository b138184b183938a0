// trace joins the timelines of the ranks into one file that a browser can show.
#include <map>
#include <ostream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "client/output/timeline.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct TraceOptions {
  std::string job;
  int rank = -1;    // -1 means all ranks
  int attempt = 0;  // 0 means the newest attempt
  std::string output_file;
};

// Browsers cannot show files that come near this size.
constexpr int64_t kBytesMax = int64_t{512} << 20;

// Reads what each rank has written so far.
absl::StatusOr<std::map<int, std::string>> ReadTimelines(link::ServerLink& link,
                                                         const v1::TailLogsRequest& request) {
  grpc::ClientContext call;
  const link::Interrupt::Scope scope(link.interrupt(), call);
  const auto reader = link.jobs().TailLogs(&call, request);
  std::map<int, std::string> texts;
  int64_t bytes = 0;
  v1::TailLogsResponse chunk;
  while (reader->Read(&chunk)) {
    bytes += static_cast<int64_t>(chunk.data().size());
    if (bytes > kBytesMax) {
      call.TryCancel();
      while (reader->Read(&chunk)) continue;
      (void)reader->Finish();
      return absl::ResourceExhaustedError(absl::StrCat(
          "the timeline is larger than ", FormatBytes(kBytesMax), "; take one rank with --rank"));
    }
    texts[chunk.rank()] += chunk.data();
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return link.Error(status);
  return texts;
}

// Returns the name of a rank: "rank 0: lab-1 cpu-0".
std::map<int, std::string> NamesOf(const v1::Job& job, int attempt) {
  std::map<int, std::string> names;
  if (attempt != job.attempt()) return names;  // only the newest attempt's placement is known
  for (const v1::RankPlacement& rank : job.placement()) {
    names[rank.rank()] = absl::StrCat("rank ", rank.rank(), ": ", output::ShortName(rank.worker()),
                                      " ", output::RankPlaceText(rank));
  }
  return names;
}

void TellSummary(const Context& context, const output::Timeline& timeline, const v1::Job& job,
                 bool of_newest) {
  const auto hidden = timeline.HiddenFraction();
  context.Say(absl::StrCat(
      Counted(timeline.step_count(), "step"), " of ", Counted(timeline.rank_count(), "rank"), ", ",
      Counted(timeline.event_count(), "event"), "; ",
      hidden.has_value()
          ? absl::StrCat(output::PercentText(*hidden), " of the communication is hidden")
          : "no communication"));
  if (timeline.skipped() > 0) {
    context.Say(absl::StrCat(timeline.skipped(), " lines are not events and were left out"));
  }
  std::set<std::string> workers;
  for (const v1::RankPlacement& rank : job.placement()) workers.insert(rank.worker());
  if (of_newest && workers.size() > 1) {
    context.Say("the timelines of different workers line up as well as their clocks do");
  }
}

Result Trace(const Context& context, const TraceOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::GetJobRequest get;
  TY_ASSIGN_OR_RETURN(*get.mutable_name(), ResolveOne(*link, options.job));
  TY_ASSIGN_OR_RETURN(const v1::Job job, link->Call(&v1::JobService::Stub::GetJob, get));
  const int attempt = options.attempt > 0 ? options.attempt : job.attempt();
  if (attempt == 0) {
    return absl::NotFoundError(absl::StrCat(job.name(), " is ", output::StateText(job.state()),
                                            " and has not run yet, so there is no timeline"));
  }
  v1::TailLogsRequest request;
  request.set_name(absl::StrCat(job.name(), "/attempts/", attempt));
  request.set_stream(v1::RANK_STREAM_TRACE);
  if (options.rank >= 0) request.set_rank(options.rank);
  TY_ASSIGN_OR_RETURN(const auto texts, ReadTimelines(*link, request));
  output::Timeline timeline;
  for (const auto& [rank, text] : texts) timeline.Add(rank, text);
  if (timeline.event_count() == 0) {
    return absl::NotFoundError(absl::StrCat(
        request.name(), options.rank >= 0 ? absl::StrCat(", rank ", options.rank, ",") : "",
        " has no timeline",
        output::HasEnded(job) ? "" : " yet; ranks write it in the first steps"));
  }
  const std::string json = timeline.Json(
      NamesOf(job, attempt), {{"attempt", request.name()}, {"name", job.resolved_spec().name()}});
  if (options.output_file.empty()) {
    context.out << json;
  } else {
    TY_RETURN_IF_ERROR(ReplaceFile(options.output_file, json));
  }
  TellSummary(context, timeline, job, attempt == job.attempt());
  context.Say(absl::StrCat("open ", options.output_file.empty() ? "it" : options.output_file,
                           " in chrome://tracing or https://ui.perfetto.dev"));
  return link::kOk;
}

}  // namespace

void AddTrace(VerbTable& verbs) {
  verbs.Add<TraceOptions>(
      "trace", "Combine the timelines of the ranks into one, for a browser", "last -O trace.json",
      [](client::Flags& flags, TraceOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Value("--rank", options.rank, "Only this rank").Range(0, 4095);
        flags.Value("--attempt", options.attempt, "Timeline of this attempt (the newest)")
            .Range(1, 1'000'000);
        flags.Value("-O,--output-file", options.output_file, "File to write (standard output)");
      },
      Trace);
}

}  // namespace trainyard::commands
