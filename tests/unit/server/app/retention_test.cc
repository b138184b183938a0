// Tests what is deleted by rules of age, number and size, and what stays all the same.
#include "server/retention.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/core/yard/yard_fixture.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Retention : public core::YardTest {
 protected:
  static constexpr int64_t kMiB = int64_t{1} << 20;

  Retention() { Join("lab-1", 1); }

  // Returns a job that ends an hour after the one before, with a checkpoint of 5 MiB, 2 MiB of logs
  // and 1 MiB of metrics.
  JobId Ended(const core::Submission& submission = Spec(1)) {
    now_.wall_us += core::kHour;
    const JobId job = Submit(submission);
    Run("lab-1", job);
    TY_CHECK_OK(Apply(core::CommitCheckpoint{
        sessions_["lab-1"], {job, 1}, 1, 10, {{"model", 5 * kMiB, absl::StrCat("h", job.value)}}}));
    TY_CHECK_OK(Sync("lab-1", {SeeExit(job, core::OutcomeKind::kSucceeded)}));
    TY_CHECK_OK(Sync("lab-1", {}));
    TY_CHECK_OK(Apply(core::NoteStreams{{{job, {2 * kMiB, kMiB}}}}));
    return job;
  }
  // Returns what would be deleted: "1" for a job, "1 clm" for its checkpoints, logs and metrics.
  std::vector<std::string> Expired(const KeepRules& rules, size_t max = 100) {
    std::vector<std::string> texts;
    RetentionReview review(rules, now_.wall_us,
                           [this](const core::JobRecord& job) { return job.id == kept_; });
    while (review.Step(*yard_, jobs_of_step_)) continue;
    for (const core::DeleteJob& deletion : review.TakeDeletions(max)) {
      std::string parts = deletion.parts.any() ? " " : "";
      if (deletion.parts.checkpoints) parts += "c";
      if (deletion.parts.logs) parts += "l";
      if (deletion.parts.metrics) parts += "m";
      texts.push_back(absl::StrCat(deletion.job.value, parts));
    }
    return texts;
  }
  // A review in the smallest steps finds the same as one in large steps.
  size_t jobs_of_step_ = 1;
  JobId kept_;  // the job that was given the tag 'keep' afterwards
  static KeepRule Rule(absl::string_view text) { return ParseKeepRule(text).value(); }
};

TEST_F(Retention, NothingGoesWithoutARule) {
  Ended();
  now_.wall_us += 1000 * 24 * core::kHour;
  EXPECT_THAT(Expired({}), IsEmpty());
}

TEST_F(Retention, AnImportedJobIsAsOldAsItsImport) {
  auto imported = std::make_shared<core::ImportedJob>();
  auto submission = std::make_shared<core::Submission>(Spec(1));
  submission->import_origin = "origin";
  imported->job.submission = std::move(submission);
  imported->job.state = core::job_fsm::Succeeded{};
  imported->job.end_us = core::kHour;
  ASSERT_TRUE(Apply(core::ImportJob{imported, "", "", "user:anna"}).ok());
  EXPECT_THAT(Expired({.jobs = Rule("90 min")}), IsEmpty());
  now_.wall_us += 2 * core::kHour;
  EXPECT_THAT(Expired({.jobs = Rule("90 min")}), ElementsAre("1"));
}

TEST_F(Retention, AgeNumberAndSizeEachLimitJobs) {
  for (int i = 0; i < 4; ++i) Ended();
  EXPECT_THAT(Expired({.jobs = Rule("90 min")}), ElementsAre("1", "2"));
  EXPECT_THAT(Expired({.jobs = Rule("3 jobs")}), ElementsAre("1"));
  EXPECT_THAT(Expired({.jobs = Rule("0 jobs")}), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(Expired({.jobs = Rule("0 jobs")}, 2), ElementsAre("1", "2"));
  EXPECT_THAT(Expired({.jobs = Rule("24MiB")}), ElementsAre("1"));
  EXPECT_THAT(Expired({.jobs = Rule("23 MiB")}), ElementsAre("1", "2"));
  EXPECT_THAT(Expired({.jobs = Rule("3 jobs, 90 min, 1 TiB")}), ElementsAre("1", "2"));
}

TEST_F(Retention, AReviewLooksAtAFewJobsInEachStepAndBearsThatJobsVanishMeanwhile) {
  for (int i = 0; i < 4; ++i) Ended();
  const KeepRules rules = {.jobs = Rule("1 jobs")};
  RetentionReview review(rules, now_.wall_us);
  EXPECT_TRUE(review.Step(*yard_, 3)) << "it has not seen the last job yet";
  EXPECT_TRUE(review.Step(*yard_, 3)) << "it has decided nothing yet";
  EXPECT_TRUE(review.Step(*yard_, 3));
  ASSERT_TRUE(Apply(core::DeleteJob{JobId{1}, {}, "anna"}).ok());
  EXPECT_FALSE(review.Step(*yard_, 3));
  std::vector<int64_t> deleted;
  for (const core::DeleteJob& deletion : review.TakeDeletions(100)) {
    deleted.push_back(deletion.job.value);
  }
  EXPECT_THAT(deleted, ElementsAre(2, 3));
  jobs_of_step_ = 100;
  EXPECT_THAT(Expired(rules), ElementsAre("2", "3"));
}

TEST_F(Retention, PartsGoWhileTheJobStays) {
  Ended();
  Ended();
  EXPECT_THAT(Expired({.checkpoints = Rule("1 jobs")}), ElementsAre("1 c"));
  EXPECT_THAT(Expired({.logs = Rule("3 MiB"), .metrics = Rule("30 min")}), ElementsAre("1 lm"));
  ASSERT_TRUE(Apply(core::DeleteJob{JobId{1}, {.logs = true}, "server"}).ok());
  EXPECT_THAT(Expired({.logs = Rule("3 MiB"), .metrics = Rule("30 min")}), ElementsAre("1 m"));
  EXPECT_THAT(Expired({.jobs = Rule("1 jobs"), .logs = Rule("3 MiB")}), ElementsAre("1"))
      << "a job that goes takes its parts along";
}

TEST_F(Retention, JobsThatArePinnedStayAndCount) {
  core::Submission tagged = Spec(1);
  tagged.tags = {"keep"};
  core::Submission retained = Spec(1);
  retained.retain_us = core::kForever;
  Ended(tagged);
  Ended(retained);
  Ended();
  EXPECT_THAT(Expired({.jobs = Rule("0 jobs"), .logs = Rule("0 jobs")}), ElementsAre("3"));
  EXPECT_THAT(Expired({.jobs = Rule("2 jobs")}), ElementsAre("3"));
  EXPECT_THAT(Expired({.jobs = Rule("3 jobs")}), IsEmpty());
}

TEST_F(Retention, AJobThatWasTaggedAfterwardsStaysToo) {
  kept_ = Ended();
  Ended();
  EXPECT_THAT(Expired({.jobs = Rule("0 jobs")}), ElementsAre("2"));
}

TEST_F(Retention, AJobMaySayHowLongItIsKept) {
  core::Submission longer = Spec(1);
  longer.retain_us = 10 * core::kHour;
  core::Submission shorter = Spec(1);
  shorter.retain_us = core::kHour;
  Ended(longer);
  Ended(shorter);
  Ended();
  now_.wall_us += 2 * core::kHour;
  EXPECT_THAT(Expired({}), ElementsAre("2"));
  EXPECT_THAT(Expired({.jobs = Rule("1 h"), .logs = Rule("1 h")}), ElementsAre("2", "3"));
  EXPECT_THAT(Expired({.jobs = Rule("1 jobs")}), ElementsAre("1", "2")) << "its size still counts";
}

TEST_F(Retention, WhatOtherJobsNeedStays) {
  const JobId origin = Ended();
  core::Submission child = Spec(4);
  child.parent_checkpoint = core::CheckpointRef{origin, 10};
  Submit(child);
  EXPECT_THAT(Expired({.checkpoints = Rule("0 jobs")}), IsEmpty());
  EXPECT_THAT(Expired({.checkpoints = Rule("0 jobs"), .logs = Rule("0 jobs")}),
              ElementsAre("1 cl"));
}

TEST_F(Retention, JobsAreMeasuredUntilAllOfThemIsThere) {
  const JobId old = Ended();
  const JobId runs = Submit(1);
  const JobId waits = Submit(1);
  EXPECT_THAT(FindUnmeasured(*yard_, 0, {}, 10), ElementsAre(old, runs));
  const int64_t later = now_.wall_us + core::kHour;
  EXPECT_THAT(FindUnmeasured(*yard_, later, {}, 10), ElementsAre(runs));
  EXPECT_THAT(FindUnmeasured(*yard_, 0, old, 10), ElementsAre(runs));
  EXPECT_THAT(FindUnmeasured(*yard_, 0, {}, 1), ElementsAre(old));
  Restart();
  EXPECT_THAT(FindUnmeasured(*yard_, later, {}, 10), ElementsAre(old, runs))
      << "a new server knows nothing";
  EXPECT_EQ(yard_->FindStreams(waits), nullptr);
}

TEST(KeepRules, AreReadAsPeopleWriteThem) {
  EXPECT_TRUE(ParseKeepRule("forever")->is_forever());
  const KeepRule rule = *ParseKeepRule("90d, 5000 jobs,500GiB");
  EXPECT_EQ(rule.age, absl::Hours(90 * 24));
  EXPECT_EQ(rule.jobs, 5000);
  EXPECT_EQ(rule.bytes, int64_t{500} << 30);
  const auto error = [](absl::string_view text) {
    return std::string(ParseKeepRule(text).status().message());
  };
  EXPECT_THAT(error("soon"), HasSubstr("'soon' is no limit; expected an age such as 90d"));
  EXPECT_THAT(error(""), HasSubstr("'' is no limit"));
  EXPECT_THAT(error("1d,2d"), HasSubstr("'2d' is a second limit of the same kind"));
  EXPECT_THAT(error("1.5 jobs"), HasSubstr("is no number of jobs"));
  EXPECT_THAT(error("-1 jobs"), HasSubstr("'-1 jobs'"));
}

}  // namespace
}  // namespace trainyard
