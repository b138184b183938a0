// Writes operations down for people.
#include "tests/linearizability/history.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace trainyard::linearizability {
namespace {

// A list may show hundreds of jobs.
constexpr size_t kShownJobsMax = 4;

std::string Milliseconds(int64_t time) {
  return time == kNever ? "?" : absl::StrFormat("%.3f", static_cast<double>(time) / 1e6);
}

}  // namespace

const char* Name(Phase phase) {
  static constexpr const char* kNames[kPhases] = {
      "absent",   "queued",    "starting",  "running", "stopping (cancel)", "stopping (suspend)",
      "stopping", "suspended", "succeeded", "failed",  "cancelled",         "deleted"};
  return kNames[static_cast<int>(phase)];
}

const char* Name(Verb verb) {
  switch (verb) {
    case Verb::kCreate:
      return "create";
    case Verb::kClone:
      return "clone";
    case Verb::kCancel:
      return "cancel";
    case Verb::kSuspend:
      return "suspend";
    case Verb::kResume:
      return "resume";
    case Verb::kDelete:
      return "delete";
    case Verb::kGet:
      return "get";
    case Verb::kList:
      return "list";
    case Verb::kWatched:
      return "watched";
  }
  TY_CHECK(false);
  return "";
}

const char* Name(Answer answer) {
  switch (answer) {
    case Answer::kUnknown:
      return "unknown";
    case Answer::kDone:
      return "done";
    case Answer::kRefused:
      return "refused";
    case Answer::kMissing:
      return "missing";
  }
  TY_CHECK(false);
  return "";
}

std::string Text(const Operation& operation) {
  std::string text =
      absl::StrFormat("client %d, %s to %s ms: %s", operation.client, Milliseconds(operation.call),
                      Milliseconds(operation.end), Name(operation.verb));
  if (operation.job != 0) absl::StrAppend(&text, " jobs/", operation.job);
  if (!operation.request.empty()) absl::StrAppend(&text, " '", operation.request, "'");
  absl::StrAppend(&text, ": ", Name(operation.answer));
  size_t shown = 0;
  for (const Sighting& seen : operation.seen) {
    if (++shown > kShownJobsMax) {
      absl::StrAppend(&text, ", ...");
      break;
    }
    absl::StrAppend(&text, ", jobs/", seen.job, " ", Name(seen.phase), " at ", seen.revision);
  }
  return text;
}

}  // namespace trainyard::linearizability
