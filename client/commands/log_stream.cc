// The server sends text again after a lost connection, so the printer knows where each rank's text
// has ended.
#include "client/commands/log_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/escape.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kLogsReconnectFor = absl::Minutes(2);

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

}  // namespace

void LogPrinter::OnChunk(const v1::TailLogsResponse& chunk) {
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

void LogPrinter::Release() {
  held_lines_ = -1;
  for (auto& [rank, text] : std::exchange(held_, {})) Print(rank, text);
}

void LogPrinter::Flush() {
  for (const auto& [rank, rest] : partial_) {
    if (!rest.empty()) PrintLine(rank, rest);
  }
  partial_.clear();
  out_ << std::flush;
}

int64_t LogPrinter::ResumeOffset() const {
  int64_t offset = -1;
  for (const auto& [rank, end] : ends_) offset = offset < 0 ? end : std::min(offset, end);
  return std::max<int64_t>(offset, 0);
}

// Cuts the text after the newline that comes before the first line to keep.
void LogPrinter::KeepLastLines(std::string& text) const {
  int64_t lines = 0;
  for (size_t i = text.size(); i > 0; --i) {
    const bool is_end = text[i - 1] == '\n' && i != text.size();
    if (is_end && ++lines == held_lines_) {
      text.erase(0, i);
      break;
    }
  }
  if (held_lines_ == 0) text.clear();
}

void LogPrinter::Print(int rank, absl::string_view data) {
  if (held_lines_ >= 0) {
    std::string& text = held_[rank];
    absl::StrAppend(&text, data);
    KeepLastLines(text);
    return;
  }
  if (!with_rank_) {
    Write(data);
    out_ << std::flush;
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
  out_ << std::flush;
}

void LogPrinter::PrintLine(int rank, absl::string_view line) {
  const std::string label = absl::StrCat("[", rank, "]");
  out_ << (is_raw_ ? label : context_.terminal.Style("2", label)) << " ";
  Write(line);
  out_ << "\n";
}

void LogPrinter::Write(absl::string_view bytes) {
  if (is_raw_) {
    out_ << bytes;
  } else {
    out_ << WithoutEscapes(bytes);
  }
}

Result ReadLogs(const Context& context, link::ServerLink& link, v1::TailLogsRequest request,
                LogPrinter& printer) {
  Backoff backoff(absl::Milliseconds(200), absl::Seconds(2), context.rng);
  absl::Duration last_success = context.clock.Uptime();
  bool is_told_lost = false;
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
                           context.clock.Uptime() - last_success < kLogsReconnectFor;
    if (!may_retry) return status;
    if (got_any) {
      context.Say("--- the connection to the server is lost; trying again");
      is_told_lost = true;
    }
    if (context.interrupt.WaitFor(backoff.Next())) return link::kInterrupted;
    // A newer attempt has logs of its own, which are read from the beginning.
    v1::GetJobRequest get;
    get.set_name(request.name());
    const auto job = link.Call(&v1::JobService::Stub::GetJob, get);
    if (job.ok() && std::exchange(is_told_lost, false)) {
      context.Say("--- the server is back; following continues");
    }
    request.set_offset(job.ok() && job->attempt() == printer.attempt() ? printer.ResumeOffset()
                                                                       : 0);
  }
}

}  // namespace trainyard::commands
