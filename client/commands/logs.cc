// logs prints what the ranks wrote. After a lost connection it continues without printing any text
// twice.
#include <map>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/backoff.h"
#include "common/base/errors.h"
#include "common/base/escape.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct LogsOptions {
  std::string job;
  bool follow = false;
  int rank = -1;            // -1 means all ranks
  int64_t tail_lines = -1;  // -1 means all lines
};

// Lines are rarely longer than this; --tail fetches this many bytes for each line.
constexpr int64_t kTailBytesPerLine = 1024;
constexpr absl::Duration kReconnectFor = absl::Minutes(2);

// Prints the text of the ranks. If there are several ranks, every line begins with the number of
// its rank, and only whole lines are written, so that two ranks never share a line.
class LogPrinter {
 public:
  LogPrinter(const Context& context, bool with_rank) : context_(context), with_rank_(with_rank) {}

  void OnChunk(const v1::TailLogsResponse& chunk) {
    if (chunk.attempt() != attempt_) {
      Flush();
      if (attempt_ != 0) context_.Say(absl::StrCat("--- attempt ", chunk.attempt()));
      attempt_ = chunk.attempt();
      ends_.clear();
    }
    absl::string_view data = chunk.data();
    const auto known = ends_.find(chunk.rank());
    const int64_t end = chunk.offset() + static_cast<int64_t>(data.size());
    if (known != ends_.end()) {
      // After a lost connection, the server sends the text again of those ranks that were ahead of
      // the others.
      if (end <= known->second) return;
      if (chunk.offset() < known->second) {
        data.remove_prefix(static_cast<size_t>(known->second - chunk.offset()));
      } else if (chunk.offset() > known->second) {
        context_.Say(absl::StrCat("--- ", chunk.offset() - known->second, " bytes of rank ",
                                  chunk.rank(), " are gone"));
      }
    }
    ends_[chunk.rank()] = end;
    Print(chunk.rank(), data);
  }

  // Holds text back until Release is called, and keeps only the last lines of it.
  void Hold(int64_t lines) { held_lines_ = lines; }
  void Release() {
    held_lines_ = -1;
    for (auto& [rank, text] : std::exchange(held_, {})) Print(rank, text);
  }
  void Flush() {
    for (const auto& [rank, rest] : partial_) {
      if (!rest.empty()) PrintLine(rank, rest);
    }
    partial_.clear();
    context_.out << std::flush;
  }

  // Returns the offset from which no rank misses any text, which is the smallest end.
  int64_t ResumeOffset() const {
    int64_t offset = -1;
    for (const auto& [rank, end] : ends_) offset = offset < 0 ? end : std::min(offset, end);
    return std::max<int64_t>(offset, 0);
  }
  int attempt() const { return attempt_; }

 private:
  void Print(int rank, absl::string_view data) {
    if (held_lines_ >= 0) {
      std::string& text = held_[rank];
      absl::StrAppend(&text, data);
      // The text is cut after the newline that comes before the first line to keep.
      int64_t lines = 0;
      for (size_t i = text.size(); i > 0; --i) {
        const bool is_end = text[i - 1] == '\n' && i != text.size();
        if (is_end && ++lines == held_lines_) {
          text.erase(0, i);
          break;
        }
      }
      if (held_lines_ == 0) text.clear();
      return;
    }
    if (!with_rank_) {
      context_.out << WithoutEscapes(data) << std::flush;
      return;
    }
    std::string& rest = partial_[rank];
    absl::StrAppend(&rest, data);
    size_t start = 0;
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', start)) {
      PrintLine(rank, absl::string_view(rest).substr(start, end - start));
      start = end + 1;
    }
    rest.erase(0, start);
    context_.out << std::flush;
  }
  void PrintLine(int rank, absl::string_view line) {
    context_.out << context_.terminal.Style("2", absl::StrCat("[", rank, "]")) << " "
                 << WithoutEscapes(line) << "\n";
  }

  const Context& context_;
  const bool with_rank_;
  int attempt_ = 0;
  int64_t held_lines_ = -1;
  std::map<int, int64_t> ends_;
  std::map<int, std::string> held_;
  std::map<int, std::string> partial_;
};

absl::Status ReadOnce(link::ServerLink& link, const v1::TailLogsRequest& request,
                      LogPrinter& printer, bool& got_any) {
  grpc::ClientContext call;
  const link::Interrupt::Scope scope(link.interrupt(), call);
  const auto reader = link.jobs().TailLogs(&call, request);
  v1::TailLogsResponse chunk;
  while (reader->Read(&chunk)) {
    got_any = true;
    printer.OnChunk(chunk);
  }
  const grpc::Status status = reader->Finish();
  return status.ok() ? absl::OkStatus() : link.Error(status);
}

// Reads to the end, and continues after lost connections.
Result ReadAll(const Context& context, link::ServerLink& link, v1::TailLogsRequest request,
               LogPrinter& printer) {
  Backoff backoff(absl::Milliseconds(200), absl::Seconds(2), context.rng);
  absl::Duration last_success = context.clock.Uptime();
  while (true) {
    bool got_any = false;
    const absl::Status status = ReadOnce(link, request, printer, got_any);
    printer.Flush();
    if (context.interrupt.triggered()) return link::kInterrupted;
    if (status.ok()) return link::kOk;
    if (got_any) {
      last_success = context.clock.Uptime();
      backoff.Reset();
    }
    const bool may_retry = request.follow() && status.code() == absl::StatusCode::kUnavailable &&
                           context.clock.Uptime() - last_success < kReconnectFor;
    if (!may_retry) return status;
    if (got_any) context.Say("--- the connection to the server is lost; trying again");
    if (context.interrupt.WaitFor(backoff.Next())) return link::kInterrupted;
    // A newer attempt has logs of its own, which are read from the beginning.
    v1::GetJobRequest get;
    get.set_name(request.name());
    const auto job = link.Call(&v1::JobService::Stub::GetJob, get);
    request.set_offset(job.ok() && job->attempt() == printer.attempt() ? printer.ResumeOffset()
                                                                       : 0);
  }
}

Result Logs(const Context& context, const LogsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::string name = options.job;
  v1::GetJobRequest get;
  if (const auto attempt = ParseAttemptName(name); attempt.ok()) {
    get.set_name(JobName(attempt->job));
  } else {
    TY_ASSIGN_OR_RETURN(name, ResolveOne(*link, name));
    get.set_name(name);
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
    TY_ASSIGN_OR_RETURN(const link::ExitCode code, ReadAll(context, *link, tail, printer));
    printer.Release();
    printer.Flush();
    if (code != link::kOk || !options.follow) return code;
    request.set_offset(printer.ResumeOffset());
  }
  request.set_follow(options.follow);
  return ReadAll(context, *link, request, printer);
}

}  // namespace

void AddLogs(VerbTable& verbs) {
  verbs.Add<LogsOptions>(
      "logs", "Show what the ranks wrote", "last --rank 0 -f",
      [](client::Flags& flags, LogsOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Switch("-f,--follow", options.follow,
                     "Keep printing text as it comes, until the job ends");
        flags.Value("--rank", options.rank, "Only this rank").Range(0, 4095);
        flags.Value("--tail", options.tail_lines, "Only this many last lines of each rank")
            .Range(0, 1'000'000);
      },
      Logs);
}

}  // namespace trainyard::commands
