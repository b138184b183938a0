// Takes a history apart by jobs, and searches an order for each of them.
#include "tests/linearizability/judge.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/linearizability/job_model.h"
#include "tests/linearizability/search.h"
#include "tests/linearizability/shared_rules.h"

namespace trainyard::linearizability {
namespace {

// The operations that are named with an anomaly, before the one that has no place.
constexpr size_t kOperationsShown = 6;

// Everything that was done to one job and seen of it.
struct Part {
  bool runs = false;
  std::vector<Interval> intervals;
  std::vector<JobStep> steps;
  std::vector<const Operation*> origins;
  std::map<int64_t, int> last_of_stream;

  int Add(const Operation& origin, JobStep step, int after = -1) {
    intervals.push_back({origin.call, origin.end, after});
    steps.push_back(step);
    origins.push_back(&origin);
    return static_cast<int>(steps.size()) - 1;
  }
};

JobStep::Kind KindOf(Verb verb) {
  switch (verb) {
    case Verb::kCreate:
    case Verb::kClone:
      return JobStep::Kind::kCreate;
    case Verb::kCancel:
      return JobStep::Kind::kCancel;
    case Verb::kSuspend:
      return JobStep::Kind::kSuspend;
    case Verb::kResume:
      return JobStep::Kind::kResume;
    default:
      return JobStep::Kind::kDelete;
  }
}

JobStep StepOf(const Sighting& seen) {
  return {JobStep::Kind::kSeen, Answer::kDone, seen.phase, seen.revision};
}

class Splitter {
 public:
  explicit Splitter(const History& history) : jobs_(FindJobs(history)) {
    for (const Operation& operation : history) {
      for (const Sighting& seen : operation.seen) parts_[seen.job].runs |= seen.runs;
      if (operation.job != 0) parts_[operation.job];
    }
    for (const Operation& operation : history) NoteSubmission(operation);
    for (const Operation& operation : history) Add(operation);
  }

  const std::map<int64_t, Part>& parts() const { return parts_; }

 private:
  void NoteSubmission(const Operation& operation) {
    const auto made = jobs_.find(operation.request);
    if (made == jobs_.end()) return;
    const auto [it, is_new] = first_call_.emplace(made->second, operation.call);
    if (!is_new) it->second = std::min(it->second, operation.call);
  }

  void Add(const Operation& operation) {
    switch (operation.verb) {
      case Verb::kGet:
        return AddGet(operation);
      case Verb::kList:
        return AddList(operation);
      case Verb::kWatched:
        return AddWatched(operation);
      case Verb::kClone:
        AddOriginal(operation);
        break;
      default:
        break;
    }
    int64_t job = operation.job;
    if (operation.verb == Verb::kCreate || operation.verb == Verb::kClone) {
      const auto made = jobs_.find(operation.request);
      // A submission of which nothing was ever seen has no effect to explain.
      if (made == jobs_.end()) return;
      job = made->second;
    }
    Part& part = parts_[job];
    // The original of a clone may be missing, but not once the clone was made.
    if (operation.verb == Verb::kClone && operation.answer == Answer::kMissing) {
      part.Add(operation, {JobStep::Kind::kAbsent});
      return;
    }
    const int effect = part.Add(operation, {KindOf(operation.verb), operation.answer});
    // The answer shows the job as it is once the effect is on disk, or later.
    for (const Sighting& seen : operation.seen) part.Add(operation, StepOf(seen), effect);
  }

  void AddOriginal(const Operation& operation) {
    if (operation.answer == Answer::kDone) {
      parts_[operation.job].Add(operation, {JobStep::Kind::kExists});
    }
    // If there is a clone, it may be the clone that is missing, since somebody has deleted it.
    if (operation.answer == Answer::kMissing && !jobs_.contains(operation.request)) {
      parts_[operation.job].Add(operation, {JobStep::Kind::kAbsent});
    }
  }

  void AddGet(const Operation& operation) {
    if (operation.answer == Answer::kMissing) {
      parts_[operation.job].Add(operation, {JobStep::Kind::kAbsent});
    }
    for (const Sighting& seen : operation.seen) parts_[seen.job].Add(operation, StepOf(seen));
  }

  void AddList(const Operation& operation) {
    if (operation.answer != Answer::kDone) return;
    std::set<int64_t> shown;
    for (const Sighting& seen : operation.seen) {
      shown.insert(seen.job);
      parts_[seen.job].Add(operation, StepOf(seen));
    }
    for (auto& [job, part] : parts_) {
      const auto call = first_call_.find(job);
      const bool is_early = call != first_call_.end() && operation.end < call->second;
      if (!is_early && !shown.contains(job)) part.Add(operation, {JobStep::Kind::kAbsent});
    }
  }

  void AddWatched(const Operation& operation) {
    for (const Sighting& seen : operation.seen) {
      Part& part = parts_[seen.job];
      const auto [last, is_first] = part.last_of_stream.emplace(operation.stream, -1);
      last->second = part.Add(operation, StepOf(seen), last->second);
    }
  }

  const JobOfRequest jobs_;
  std::map<int64_t, Part> parts_;
  std::map<int64_t, int64_t> first_call_;  // of the job's submission
};

std::string Explain(int64_t job, const Part& part, const Finding& finding) {
  JobStates states;
  for (const size_t i : finding.longest) {
    states = Step(states, part.steps[i], part.runs).value_or(states);
  }
  std::string text =
      absl::StrCat("jobs/", job, ": no order of the ", part.steps.size(),
                   " operations explains them all. The longest one has ", finding.longest.size(),
                   ", after which the job is ", Text(states), ". It leaves no place for\n  ",
                   Text(*part.origins[finding.stuck]));
  absl::StrAppend(&text, "\nand ends with");
  const size_t shown = std::min(kOperationsShown, finding.longest.size());
  for (size_t i = finding.longest.size() - shown; i < finding.longest.size(); ++i) {
    absl::StrAppend(&text, "\n  ", Text(*part.origins[finding.longest[i]]));
  }
  return text;
}

}  // namespace

Judgement Judge(const History& history, int64_t steps_max) {
  Judgement judgement;
  CheckNumbers(history, judgement.anomalies);
  CheckRevisions(history, judgement.anomalies);
  const Splitter splitter(history);
  for (const auto& [job, part] : splitter.parts()) {
    const auto step = [&part](const JobStates& states, size_t i) {
      return Step(states, part.steps[i], part.runs);
    };
    const Finding finding = FindOrder(part.intervals, JobStates(), step, steps_max);
    ++judgement.jobs;
    judgement.steps += finding.steps;
    if (finding.verdict == Verdict::kUnexplained) {
      judgement.anomalies.push_back(Explain(job, part, finding));
    } else if (finding.verdict == Verdict::kGaveUp) {
      judgement.undecided.push_back(absl::StrCat(
          "jobs/", job, ": no order of its ", part.steps.size(), " operations was found within ",
          steps_max, " steps, and the search was given up; that proves nothing"));
    }
  }
  return judgement;
}

}  // namespace trainyard::linearizability
