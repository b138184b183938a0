// Finds jobs and checkpoints by selectors. All selectors that count from the newest job are
// resolved by one call.
#include "client/commands/selector.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

constexpr int64_t kJobsMax = 1000;
// ListJobs returns no larger pages.
constexpr int kBackMax = 999;

absl::Status BadSelector(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' ", why, "; write 12, jobs/12, last, @~1, 1-10,15, or the name of a job"));
}

// The name of a spec may also begin with a digit, but such a text is more likely a mistyped number.
bool IsJobName(absl::string_view text) {
  return !text.empty() && absl::ascii_isalpha(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                  c == '-';
         });
}

bool ParseNumber(absl::string_view text, int64_t& number) {
  return absl::SimpleAtoi(text, &number) && number >= 1 && absl::StrCat(number) == text;
}

absl::StatusOr<Selection> ParsePart(absl::string_view text, absl::string_view part) {
  Selection selection;
  if (part == "last" || part == "@") {
    selection.back = 0;
    return selection;
  }
  absl::string_view rest = part;
  if (absl::ConsumePrefix(&rest, "@~")) {
    if (!absl::SimpleAtoi(rest, &selection.back) || selection.back < 0 ||
        selection.back > kBackMax) {
      return BadSelector(text, "does not name a job");
    }
    return selection;
  }
  if (IsJobName(part)) {
    selection.name = std::string(part);
    return selection;
  }
  absl::ConsumePrefix(&rest, "jobs/");
  const std::vector<absl::string_view> ends = absl::StrSplit(rest, absl::MaxSplits('-', 1));
  if (!ParseNumber(ends.front(), selection.first) || !ParseNumber(ends.back(), selection.last)) {
    return BadSelector(text, "does not name a job");
  }
  if (selection.last < selection.first) return BadSelector(text, "ends before it begins");
  if (selection.last - selection.first >= kJobsMax) {
    return BadSelector(text, absl::StrCat("names more than ", kJobsMax, " jobs"));
  }
  return selection;
}

// Returns the names of the newest jobs, of whatever name, for suggestions.
std::vector<std::string> SomeNames(link::ServerLink& link) {
  constexpr int kLookedAt = 200;
  v1::ListJobsRequest request;
  request.set_page_size(kLookedAt);
  request.set_group_arrays(true);
  std::vector<std::string> names;
  const auto newest = link.Call(&v1::JobService::Stub::ListJobs, request);
  if (!newest.ok()) return names;
  for (const v1::Job& job : newest->jobs()) names.push_back(job.resolved_spec().name());
  return names;
}

// Returns the one job that has this name.
absl::StatusOr<std::string> JobOfName(link::ServerLink& link, const std::string& name) {
  constexpr int kCandidatesMax = 10;
  v1::ListJobsRequest request;
  request.set_page_size(kCandidatesMax + 1);
  request.set_job_name(name);
  TY_ASSIGN_OR_RETURN(const v1::ListJobsResponse found,
                      link.Call(&v1::JobService::Stub::ListJobs, request));
  std::vector<std::string> candidates;
  for (const v1::Job& job : found.jobs()) {
    // A server that does not know the filter returns jobs of all names.
    if (job.resolved_spec().name() != name && job.spec().name() != name) continue;
    candidates.push_back(absl::StrCat(job.name(), " ", output::StateText(job.state())));
  }
  if (candidates.size() == 1) return found.jobs(0).name();
  if (candidates.empty()) {
    const std::string nearest = NearestWord(name, SomeNames(link));
    return MakeError(
        absl::StatusCode::kNotFound, "NOT_FOUND",
        absl::StrCat("no job is called '", name, "'",
                     nearest.empty() ? std::string("; `trainyard ls` lists jobs")
                                     : absl::StrCat("; did you mean '", nearest, "'?")));
  }
  const bool has_more = candidates.size() > kCandidatesMax;
  if (has_more) candidates.resize(kCandidatesMax);
  return absl::InvalidArgumentError(absl::StrCat(
      has_more ? absl::StrCat("more than ", kCandidatesMax) : absl::StrCat(candidates.size()),
      " jobs are called '", name, "'; write the number of one:\n  ",
      absl::StrJoin(candidates, "\n  "), has_more ? "\n  ..." : ""));
}

// Returns true if this names a checkpoint otherwise than by its step.
bool IsWord(absl::string_view which) {
  return which == "best" || which == "latest";
}

// Looks up the best or the newest checkpoint of a job.
absl::StatusOr<std::string> NamedCheckpoint(link::ServerLink& link, const std::string& job,
                                            bool best) {
  v1::ListCheckpointsRequest request;
  request.set_parent(job);
  TY_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                      link.Call(&v1::CheckpointService::Stub::ListCheckpoints, request));
  if (response.checkpoints_size() == 0) {
    return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                     absl::StrCat(job, " has no checkpoint yet"));
  }
  if (!best) return response.checkpoints(response.checkpoints_size() - 1).name();
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    if (checkpoint.is_best()) return checkpoint.name();
  }
  return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                   absl::StrCat(job, " has no checkpoint that was evaluated yet; '", job,
                                "/latest' is its newest"));
}

}  // namespace

absl::StatusOr<std::vector<Selection>> ParseSelector(absl::string_view text) {
  std::vector<Selection> selections;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TY_ASSIGN_OR_RETURN(const Selection selection, ParsePart(text, part));
    selections.push_back(selection);
  }
  return selections;
}

absl::StatusOr<std::vector<std::string>> ResolveSelectors(link::ServerLink& link,
                                                          const std::vector<std::string>& texts) {
  std::vector<Selection> selections;
  int back_max = -1;
  for (const std::string& text : texts) {
    TY_ASSIGN_OR_RETURN(const std::vector<Selection> parsed, ParseSelector(text));
    for (const Selection& selection : parsed) {
      back_max = std::max(back_max, selection.back);
      selections.push_back(selection);
    }
  }
  v1::ListJobsResponse newest;
  if (back_max >= 0) {
    v1::ListJobsRequest request;
    request.set_page_size(back_max + 1);
    TY_ASSIGN_OR_RETURN(newest, link.Call(&v1::JobService::Stub::ListJobs, request));
  }
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Selection& selection : selections) {
    if (selection.back >= 0) {
      if (selection.back >= newest.jobs_size()) {
        return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                         newest.jobs_size() == 0
                             ? std::string("there are no jobs yet; `trainyard submit` makes one")
                             : absl::StrCat("there are only ", newest.jobs_size(),
                                            " jobs; `trainyard ls -a` shows them"));
      }
      add(newest.jobs(selection.back).name());
      continue;
    }
    if (!selection.name.empty()) {
      TY_ASSIGN_OR_RETURN(const std::string job, JobOfName(link, selection.name));
      add(job);
      continue;
    }
    for (int64_t job = selection.first; job <= selection.last; ++job) add(JobName(JobId{job}));
  }
  return names;
}

absl::StatusOr<std::string> ResolveOne(link::ServerLink& link, const std::string& text) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(link, {text}));
  if (names.size() != 1) {
    return BadSelector(text, absl::StrCat("names ", names.size(), " jobs and one is expected"));
  }
  return names.front();
}

absl::StatusOr<std::string> ResolveCheckpoint(link::ServerLink& link, const std::string& text) {
  if (ParseCheckpointName(text).ok()) return text;
  const bool has_prefix = absl::StartsWith(text, "jobs/");
  const size_t slash = text.find('/', has_prefix ? 5 : 0);
  TY_ASSIGN_OR_RETURN(const std::string job, ResolveOne(link, text.substr(0, slash)));
  std::string which = slash == std::string::npos ? "latest" : text.substr(slash + 1);
  if (const absl::string_view word = absl::StripPrefix(which, "checkpoints/"); IsWord(word)) {
    which = std::string(word);
  }
  if (!IsWord(which)) {
    const std::string name = absl::StrCat(job, "/checkpoints/", which);
    if (!ParseCheckpointName(name).ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' does not name a checkpoint; write JOB/STEP, such as 12/600, ",
                       "JOB/best, JOB/latest or JOB alone"));
    }
    return name;
  }
  return NamedCheckpoint(link, job, which == "best");
}

}  // namespace trainyard::commands
