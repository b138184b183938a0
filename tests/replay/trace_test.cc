// Tests which workloads are read, which are refused, and that generators repeat themselves.
#include "tests/replay/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/replay/generators.h"

namespace trainyard::replay {
namespace {

using ::testing::HasSubstr;

constexpr char kWorkers[] = R"({"workers": {"count": 2, "devices": 4, "type": "h200"}})";

std::string ErrorOf(const std::string& line) {
  const auto trace = ParseTrace(absl::StrCat(kWorkers, "\n# a comment\n", line, "\n"));
  return std::string(trace.status().message());
}

TEST(Trace, EveryFieldIsRead) {
  const auto whole = ParseTrace(absl::StrCat(
      kWorkers,
      "\n{\"trace\": \"mine\"}\n"
      R"({"quota": {"subject": "user:anna", "devices": 4, "weight": 2}})",
      "\n{\"job\": {\"submit_s\": 0, \"work_s\": 60}}\n",
      R"({"job": {"submit_s": 1.5, "user": "ben", "project": "vision", "priority": -2, )",
      R"("devices": {"min": 2, "max": 8, "type": "h200", "mixed": true, "memory_bytes": 5, )",
      R"("labels": {"rack": "a"}, "spread": true}, "work_s": 600, "time_limit_s": 900, )",
      R"("checkpoint_every_s": 60, "checkpoint_write_s": 2, "start_s": 1, "begin_s": 30, )",
      R"("preemptible": false, "saves": false, "array": 4, "array_parallel": 2, "after": [1], "after_ok": [1]}})"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->name, "mine");
  EXPECT_EQ(whole->devices(), 8);
  ASSERT_EQ(whole->quotas.size(), 1u);
  EXPECT_EQ(whole->quotas[0].weight, 2);
  ASSERT_EQ(whole->jobs.size(), 2u);
  const TraceJob& job = whole->jobs[1];
  EXPECT_EQ(job.submit_us, 1'500'000);
  EXPECT_EQ(job.demand.min_count, 2);
  EXPECT_EQ(job.demand.count, 8);
  EXPECT_EQ(job.demand.labels.at("rack"), "a");
  EXPECT_EQ(job.work_us, 600 * core::kSecond);
  EXPECT_EQ(job.begin_us, 30 * core::kSecond);
  EXPECT_FALSE(job.preemptible);
  EXPECT_FALSE(job.saves);
  EXPECT_EQ(job.array_parallel, 2);
  EXPECT_EQ(job.after_ok, std::vector<int64_t>{1});
}

TEST(Trace, MistakesAreToldWithLineFieldValueAndWhatWasExpected) {
  EXPECT_EQ(ErrorOf(R"({"job": {"submit_s": -1, "work_s": 60}})"),
            "line 3: job.submit_s: -1; expected seconds of 0 to 1e9");
  EXPECT_EQ(ErrorOf(R"({"job": {"submit_s": 1}})"),
            "line 3: job.work_s: nothing; expected seconds; it must be given");
  EXPECT_EQ(ErrorOf(R"({"job": {"submit_s": 1, "work_s": 60, "devices": 0}})"),
            "line 3: job.devices.count: 0; expected an integer of 1 to 1000000");
  EXPECT_EQ(ErrorOf(R"({"job": {"submit_s": 1, "work_s": 60, "devices": {"max": 2, "min": 3}}})"),
            "line 3: job.devices.min: 3; expected an integer of 1 to 2");
  EXPECT_EQ(ErrorOf(R"({"job": {"submit_s": 1, "work_s": 60, "after": [1]}})"),
            "line 3: job.after: 1; expected no job, for none comes before this one");
  EXPECT_EQ(ErrorOf(R"({"job": {"submit_s": 1, "work_s": 60, "preemptible": 1}})"),
            "line 3: job.preemptible: 1; expected true or false");
  EXPECT_THAT(ErrorOf(R"({"job": {"submit_s": 1, "work_s": 60, "prio": 1}})"),
              HasSubstr("line 3: job.prio: unknown; known are after, after_ok, array"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("line 3: no JSON object with the one key"));
  EXPECT_THAT(ErrorOf(R"({"task": {}})"), HasSubstr("line 3: 'task': expected \"trace\""));
  EXPECT_THAT(ErrorOf(R"({"workers": {"count": 1}})"), HasSubstr("line 3: workers.name: 'worker'"));
  EXPECT_THAT(ErrorOf("{\"job\": {\"submit_s\": 9, \"work_s\": 60}}\n"
                      "{\"job\": {\"submit_s\": 8, \"work_s\": 60}}"),
              HasSubstr("line 4: job.submit_s: 8; expected no less than in the job before"));
  EXPECT_THAT(ParseTrace("").status().message(), HasSubstr("the trace has no {\"workers\""));
}

TEST(Trace, WhatIsWrittenIsReadBackEqual) {
  for (const char* name : {"lab-day", "hostile-mix", "large"}) {
    const auto trace = GenerateTrace(name, {.seed = 7, .jobs = 300, .workers = 5});
    ASSERT_TRUE(trace.ok());
    const auto again = ParseTrace(FormatTrace(*trace));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *trace) << name;
  }
}

TEST(Generators, TheSeedDecidesEverything) {
  const auto make = [](uint64_t seed) {
    return *GenerateTrace("large", {.seed = seed, .jobs = 100, .workers = 5});
  };
  EXPECT_EQ(make(1), make(1));
  EXPECT_NE(make(1), make(2));
}

TEST(Generators, AnUnknownWorkloadIsAnsweredWithTheKnownOnes) {
  EXPECT_EQ(GenerateTrace("lab-night", {}).status(),
            absl::NotFoundError("'lab-night': no such workload; expected lab-day, hostile-mix or "
                                "large"));
}

}  // namespace
}  // namespace trainyard::replay
