#include <functional>
#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/errors.h"

namespace trainyard::commands {
namespace {

// What to do next, where the error does not say it itself.
std::string NextStep(const absl::Status& status) {
  if (const auto delay = GetRetryDelay(status)) {
    return absl::StrCat("try again in ", DurationText(*delay));
  }
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return "the server takes too long; look at its log";
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return "this is a bug of the server; its log has the details";
    default:
      return "";
  }
}

}  // namespace

link::ExitCode Run(const Context& context, const std::vector<VerbInfo>& verbs) {
  const std::map<std::string, std::function<Result(const Context&)>> kVerbs = {
      {"submit", Submit},
      {"clone", Clone},
      {"ls", List},
      {"show", Show},
      {"watch", Watch},
      {"logs", Logs},
      {"metrics", Metrics},
      {"trace", Trace},
      {"bench scaling", BenchScaling},
      {"cancel", Cancel},
      {"suspend", Suspend},
      {"resume", Resume},
      {"diff", Diff},
      {"wait", Wait},
      {"checkpoints ls", ListCheckpoints},
      {"checkpoints get", GetCheckpoint},
      {"checkpoints verify", VerifyCheckpoint},
      {"workers ls", ListWorkers},
      {"workers cordon", Cordon},
      {"workers uncordon", Uncordon},
      {"workers lost", DeclareLost},
      {"plan", Plan},
      {"explain", Explain},
      {"top", Top},
      {"drain", Drain},
      {"devices ls", ListDevices},
      {"devices quarantine", Quarantine},
      {"devices release", Release},
      {"quotas ls", ListQuotas},
      {"quotas set", SetQuota},
      {"quotas rm", DeleteQuotas},
      {"reservations ls", ListReservations},
      {"reservations create", CreateReservation},
      {"reservations rm", DeleteReservations},
      {"shares", ListShares},
      {"data ls", ListData},
      {"data verify", VerifyData},
      {"data fetch", FetchData},
      {"up", Up},
      {"down", Down},
      {"completion", [&verbs](const Context& c) { return Completion(c, verbs); }},
      {"version", PrintVersion}};
  const auto verb = kVerbs.find(context.options.verb);
  TY_CHECK(verb != kVerbs.end());
  const Result result = verb->second(context);
  context.out << std::flush;
  if (result.ok()) return *result;
  if (context.interrupt.triggered()) return link::kInterrupted;
  context.err << context.terminal.Style("1;31", "error:") << " " << result.status().message()
              << "\n";
  const std::string next = NextStep(result.status());
  if (!next.empty()) context.err << "  " << next << "\n";
  context.err << std::flush;
  return link::ExitCodeOf(result.status());
}

}  // namespace trainyard::commands
