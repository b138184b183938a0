// Measures the review of what the server keeps. The turn loop does its steps, so the time of one
// step is a pause for everybody.
//
//   bench_retention [--jobs 100000] [--runs 10]
// Prints one line for each set of rules: the least and the middle of the milliseconds that a review
// takes, the longest step of all, and how many deletions it finds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/core/yard/yard.h"
#include "server/retention.h"

namespace trainyard {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kFirstEndUs = 1'800'000'000'000'000;
// These are those of the housekeeper.
constexpr size_t kReviewedMax = 4000;
constexpr size_t kFoundMax = 100'000;

// Returns a yard with jobs that ended a minute after each other. Each has an attempt, three
// checkpoints, logs and metrics.
core::Yard YardWith(int jobs) {
  core::Snapshot snapshot;
  snapshot.revision = 1;
  snapshot.next_job = jobs + 1;
  core::NoteStreams streams;
  for (int i = 1; i <= jobs; ++i) {
    core::Submission submission;
    submission.name = "job";
    submission.user = absl::StrCat("user-", i % 50);
    submission.project = absl::StrCat("project-", i % 7);
    core::JobRecord job;
    job.id = JobId{i};
    job.submission = std::make_shared<core::Submission>(std::move(submission));
    job.state = core::job_fsm::Succeeded{};
    job.attempt = 1;
    job.revision = 1;
    job.end_us = kFirstEndUs + i * core::kMinute;
    for (int64_t step = 1; step <= 3; ++step) {
      core::CheckpointRecord checkpoint;
      checkpoint.id = {job.id, step};
      checkpoint.attempt = 1;
      checkpoint.files = {{"model.safetensors", 5 * kMiB, "xxh3-128:0"}};
      snapshot.checkpoints[checkpoint.id] = checkpoint;
    }
    streams.bytes[job.id] = {2 * kMiB, kMiB};
    snapshot.jobs[job.id] = std::move(job);
  }
  core::Yard yard(core::Config(), std::move(snapshot), core::Now{});
  (void)yard.Apply(std::move(streams), core::Now{});
  return yard;
}

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void Measure(const std::string& what, const core::Yard& yard, const KeepRules& rules,
             int64_t now_us, int runs) {
  std::vector<double> times;
  double longest_step = 0;
  size_t found = 0;
  for (int i = 0; i < runs; ++i) {
    RetentionReview review(rules, now_us);
    double all = 0;
    for (bool has_more = true; has_more;) {
      const auto start = std::chrono::steady_clock::now();
      has_more = review.Step(yard, kReviewedMax);
      const double step = MillisecondsSince(start);
      all += step;
      longest_step = std::max(longest_step, step);
    }
    found = review.TakeDeletions(kFoundMax).size();
    times.push_back(all);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-40s %7.2f ms least %7.2f ms middle; longest step %6.2f ms; %zu found\n",
              what.c_str(), times.front(), times[times.size() / 2], longest_step, found);
}

void MeasureAll(int jobs, int runs) {
  const core::Yard yard = YardWith(jobs);
  const int64_t now_us = kFirstEndUs + (jobs + 1) * core::kMinute;
  const auto review = [&](const std::string& what, const KeepRules& rules) {
    Measure(what, yard, rules, now_us, runs);
  };
  const auto rule = [](absl::string_view text) { return ParseKeepRule(text).value(); };
  review("no rule", {});
  review("jobs by age, none is old", {.jobs = rule("9000d")});
  review("jobs by number, few are too many", {.jobs = rule(absl::StrCat(jobs - 50, " jobs"))});
  review("jobs by age, all but 1000 are old", {.jobs = rule("1000 min")});
  review("checkpoints by number, all but 1000 go", {.checkpoints = rule("1000 jobs")});
  review("four rules, nothing goes", {.jobs = rule("9000d"),
                                      .checkpoints = rule("100000000 jobs"),
                                      .logs = rule("9000d"),
                                      .metrics = rule("9000d")});
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  int jobs = 100'000;
  int runs = 10;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    int* number = flag == "--jobs" ? &jobs : flag == "--runs" ? &runs : nullptr;
    if (number == nullptr || !absl::SimpleAtoi(argv[i + 1], number) || *number < 1) argc = 0;
  }
  if (argc % 2 == 0) {
    std::fprintf(stderr, "usage: bench_retention [--jobs N] [--runs N]\n");
    return 2;
  }
  trainyard::MeasureAll(jobs, runs);
  return 0;
}
