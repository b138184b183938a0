// Tests resource names: each id has one name, and no other text is accepted.
#include "common/base/ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ::testing::HasSubstr;

TEST(Ids, NamesParseBack) {
  for (const int64_t number : {int64_t{0}, int64_t{1}, int64_t{12}, INT64_MAX}) {
    const JobId job{number};
    EXPECT_EQ(*ParseJobName(JobName(job)), job);
    const AttemptId attempt{job, 3};
    EXPECT_EQ(*ParseAttemptName(AttemptName(attempt)), attempt);
    const auto checkpoint = ParseCheckpointName(CheckpointName(job, 600));
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_EQ(checkpoint->job, job);
    EXPECT_EQ(checkpoint->step, 600);
  }
  EXPECT_EQ(*ParseWorkerName(WorkerName("lab-1")), "lab-1");
}

TEST(Ids, NamesAreSpelledAsDocumented) {
  EXPECT_EQ(JobName({12}), "jobs/12");
  EXPECT_EQ(AttemptName({{12}, 1}), "jobs/12/attempts/1");
  EXPECT_EQ(CheckpointName({12}, 600), "jobs/12/checkpoints/600");
  EXPECT_EQ(WorkerName("lab-1"), "workers/lab-1");
}

TEST(Ids, RefuseEveryOtherSpellingOfAJob) {
  for (const char* name : {"", "jobs", "jobs/", "jobs/-1", "jobs/+1", "jobs/01", "jobs/ 1",
                           "jobs/1 ", "jobs/1/", "/jobs/1", "job/1", "jobs/x", "jobs/1.0",
                           "jobs/9223372036854775808", "jobs/1/attempts/1"}) {
    const absl::Status status = ParseJobName(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("jobs/NUMBER"));
  }
}

TEST(Ids, RefuseOtherSpellingsOfAttemptsCheckpointsAndWorkers) {
  for (const char* name : {"jobs/1", "jobs/1/attempts/", "jobs/1/attempts/2147483648",
                           "jobs/1/attempts/1/x", "jobs/1/checkpoints/1", "x/1/attempts/1"}) {
    EXPECT_FALSE(ParseAttemptName(name).ok()) << name;
  }
  EXPECT_EQ(ParseAttemptName("jobs/1/attempts/2147483647")->number, INT32_MAX);
  for (const char* name : {"jobs/1/checkpoints/-1", "jobs/1/attempts/1", "jobs/1/checkpoints/01"}) {
    EXPECT_FALSE(ParseCheckpointName(name).ok()) << name;
  }
  for (const char* name : {"workers", "workers/", "workers/a/b", "lab-1"}) {
    EXPECT_FALSE(ParseWorkerName(name).ok()) << name;
  }
}

TEST(Ids, AreOrderedByJobAndThenByNumber) {
  EXPECT_LT(JobId{2}, JobId{10});
  EXPECT_LT((AttemptId{{1}, 5}), (AttemptId{{2}, 1}));
  EXPECT_LT((AttemptId{{2}, 1}), (AttemptId{{2}, 2}));
}

}  // namespace
}  // namespace trainyard
