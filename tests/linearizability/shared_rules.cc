// All changes of a commit have its revision, and commits are one after the other. So the revisions
// at which jobs were seen witness the order of changes among different jobs.
#include "tests/linearizability/shared_rules.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::linearizability {
namespace {

bool IsSubmission(const Operation& operation) {
  return operation.verb == Verb::kCreate || operation.verb == Verb::kClone;
}

// The revisions at which each job was seen.
using Revisions = std::map<int64_t, std::set<int64_t>>;

// Returns the first known change of the job after `revision` and up to `limit`, or 0.
int64_t ChangeBetween(const Revisions& known, int64_t job, int64_t revision, int64_t limit) {
  const auto found = known.find(job);
  if (found == known.end()) return 0;
  const auto change = found->second.upper_bound(revision);
  return change == found->second.end() || *change > limit ? 0 : *change;
}

std::string Stale(const Operation& operation, int64_t job, int64_t change, int64_t limit) {
  return absl::StrCat("jobs/", job, " changed at revision ", change,
                      ", but an answer as of revision ", limit,
                      " or later shows it as it was before: ", Text(operation));
}

// Checks what one operation showed against all changes up to `limit`.
void CheckSeen(const Operation& operation, const Revisions& known, const std::set<int64_t>& kept,
               int64_t limit, std::vector<std::string>& anomalies) {
  std::set<int64_t> shown;
  for (const Sighting& seen : operation.seen) {
    shown.insert(seen.job);
    if (seen.phase == Phase::kDeleted) continue;
    const int64_t change = ChangeBetween(known, seen.job, seen.revision, limit);
    if (change != 0) anomalies.push_back(Stale(operation, seen.job, change, limit));
  }
  if (operation.verb != Verb::kList) return;
  for (const int64_t job : kept) {
    if (shown.contains(job)) continue;
    const int64_t change = ChangeBetween(known, job, 0, limit);
    if (change != 0) anomalies.push_back(Stale(operation, job, change, limit));
  }
}

}  // namespace

JobOfRequest FindJobs(const History& history) {
  JobOfRequest jobs;
  for (const Operation& operation : history) {
    for (const Sighting& seen : operation.seen) {
      if (seen.phase != Phase::kDeleted) jobs.emplace(seen.request, seen.job);
    }
  }
  return jobs;
}

void CheckNumbers(const History& history, std::vector<std::string>& anomalies) {
  const JobOfRequest jobs = FindJobs(history);
  std::set<std::string> submitted;
  for (const Operation& operation : history) {
    if (IsSubmission(operation)) submitted.insert(operation.request);
  }
  std::set<std::pair<std::string, int64_t>> reported;
  std::vector<const Operation*> answered;
  for (const Operation& operation : history) {
    for (const Sighting& seen : operation.seen) {
      if (seen.phase == Phase::kDeleted || !reported.emplace(seen.request, seen.job).second) {
        continue;
      }
      if (!submitted.contains(seen.request)) {
        anomalies.push_back(absl::StrCat("nobody submitted jobs/", seen.job, " '", seen.request,
                                         "': ", Text(operation)));
      }
      if (jobs.at(seen.request) != seen.job) {
        anomalies.push_back(absl::StrCat("the submission '", seen.request, "' made jobs/",
                                         jobs.at(seen.request), " and jobs/", seen.job));
      }
    }
    if (!IsSubmission(operation) || operation.answer != Answer::kDone) continue;
    answered.push_back(&operation);
    if (operation.seen.front().request != operation.request) {
      anomalies.push_back(absl::StrCat("a submission was answered with the job of '",
                                       operation.seen.front().request, "': ", Text(operation)));
    }
  }
  // A repeated submission has the number of the first one, so only first answers count.
  std::map<std::string, std::pair<int64_t, int64_t>> spans;  // the first call, the first return
  for (const Operation& operation : history) {
    if (!IsSubmission(operation)) continue;
    const auto [it, is_new] =
        spans.emplace(operation.request, std::pair(operation.call, operation.end));
    if (is_new) continue;
    it->second.first = std::min(it->second.first, operation.call);
    it->second.second = std::min(it->second.second, operation.end);
  }
  for (const Operation* later : answered) {
    const int64_t number = later->seen.front().job;
    for (const Operation* earlier : answered) {
      if (spans.at(earlier->request).second >= spans.at(later->request).first) continue;
      if (earlier->seen.front().job > number) {
        anomalies.push_back(
            absl::StrCat("numbers went back: ", Text(*earlier), "; later ", Text(*later)));
      }
    }
  }
}

void CheckRevisions(const History& history, std::vector<std::string>& anomalies) {
  Revisions known;
  std::set<int64_t> kept;
  for (const Operation& operation : history) {
    for (const Sighting& seen : operation.seen) {
      if (seen.phase == Phase::kDeleted) continue;
      known[seen.job].insert(seen.revision);
      kept.insert(seen.job);
    }
  }
  for (const Operation& operation : history) {
    if (operation.verb == Verb::kDelete) kept.erase(operation.job);
  }
  // The newest revision that had been seen by each time.
  std::map<int64_t, int64_t> newest_by;
  for (const Operation& operation : history) {
    for (const Sighting& seen : operation.seen) {
      int64_t& newest = newest_by[operation.end];
      newest = std::max(newest, seen.revision);
    }
  }
  int64_t newest = 0;
  for (auto& [time, revision] : newest_by) {
    newest = std::max(newest, revision);
    revision = newest;
  }
  for (const Operation& operation : history) {
    if (operation.answer != Answer::kDone) continue;
    const auto after = newest_by.lower_bound(operation.call);
    int64_t limit = after == newest_by.begin() ? 0 : std::prev(after)->second;
    if (operation.verb == Verb::kList) {
      for (const Sighting& seen : operation.seen) limit = std::max(limit, seen.revision);
    }
    CheckSeen(operation, known, kept, limit, anomalies);
  }
}

}  // namespace trainyard::linearizability
