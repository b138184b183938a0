// Tests the sentences that say why a job waits, and what would start it.
#include "server/core/scheduling/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// The yard asks like this, after the decisions of the plan have been carried out.
struct Answer {
  std::vector<std::string> reasons;
  Explanation explanation;
};

Answer Ask(World& world, int64_t id) {
  const Plan plan = world.MakePlan();
  world.Carry(plan);
  const QueuedJob* job = world.queue.Find(JobId{id});
  if (job == nullptr) return {};
  return {plan.record->Reasons(world.Input(), JobId{id}),
          plan.record->Explain(world.Input(), *job)};
}

std::vector<std::string> ReasonsOf(World& world, int64_t id) {
  return Ask(world, id).reasons;
}

std::string ChangeOf(World& world, int64_t id) {
  const Explanation explanation = Ask(world, id).explanation;
  std::string text = explanation.change_text;
  for (const auto& [path, value] : explanation.change) {
    absl::StrAppend(&text, "; ", path, "=", value);
  }
  return text;
}

TEST(Explain, SaysWhatIsNeededWhatIsFreeAndWhoHoldsTheRest) {
  World world("a: h200*80=7 h200*80; b: h200*80=9");
  world.Run(7);
  world.Run(9);
  QueuedJob job = Job(10, 3, "h200");
  job.demand.memory_bytes = int64_t{80} << 30;
  world.Submit(job);
  EXPECT_THAT(ReasonsOf(world, 10),
              ElementsAre("needs 3 devices of type h200 with 80 GiB; 1 of 3 is free (jobs/7 holds "
                          "1, jobs/9 holds 1)"));
}

TEST(Explain, SaysWhenItCanNeverStart) {
  World world("a: cpu; b: h200*40; c[disk=ssd]: h200*80");
  world.Submit(Job(1, 8));
  EXPECT_THAT(ReasonsOf(world, 1),
              ElementsAre("needs 8 devices of one type; the pool has 2: it can never start here"));
  EXPECT_TRUE(Ask(world, 1).explanation.infeasible);
  QueuedJob job = Job(2, 2, "h200");
  job.demand.memory_bytes = int64_t{80} << 30;
  job.demand.labels = {{"disk", "ssd"}};
  world.Submit(job);
  EXPECT_THAT(
      ReasonsOf(world, 2),
      ElementsAre("needs 2 devices of type h200 with 80 GiB on workers with disk=ssd; the "
                  "pool has 1: it can never start here",
                  "1 device of type h200 is on workers without disk=ssd", "1 job is ahead"));
}

TEST(Explain, SaysWhichDevicesDoNotComputeInBf16) {
  World world("a: 2xcpu; b: h200^=7 v100");
  world.Run(7);
  QueuedJob job = Job(1, 1);
  job.demand.bf16 = true;
  world.Submit(job);
  EXPECT_THAT(ReasonsOf(world, 1),
              ElementsAre("needs 1 device with bf16; 0 of 1 are free (jobs/7 holds 1)",
                          "3 devices do not compute in bf16"));
  EXPECT_EQ(ChangeOf(world, 1), "in f32 it would start now; train.precision=f32");
  job = Job(2, 2);
  job.demand.bf16 = true;
  world.Submit(job);
  EXPECT_THAT(
      ReasonsOf(world, 2),
      ElementsAre("needs 2 devices with bf16 of one type; the pool has 1: it can never start "
                  "here",
                  "3 devices do not compute in bf16", "1 job is ahead"));
}

TEST(Explain, SaysThatNoWorkerHasRegistered) {
  World world("");
  world.Submit(Job(1, 1));
  EXPECT_THAT(ReasonsOf(world, 1), ElementsAre("needs 1 device", "no worker has registered"));
}

TEST(Explain, SaysWhatIsSetAside) {
  World world("a-: 2xcpu; b: cpu! cpu");
  world.Submit(Job(1, 4));
  EXPECT_THAT(ReasonsOf(world, 1),
              ElementsAre("needs 4 devices; 1 of 4 is free",
                          "device cpu-0 of worker b is quarantined: Xid 79 (1 device)",
                          "worker a is cordoned (2 devices)"));
}

TEST(Explain, NamesFiveHoldersAndCountsTheOthers) {
  World world("a: cpu=1 cpu=2 cpu=3 cpu=4 cpu=5 cpu=6 cpu=7");
  for (int64_t id = 1; id <= 7; ++id) world.Run(id);
  world.Submit(Job(8, 1));
  EXPECT_THAT(ReasonsOf(world, 8)[0],
              "needs 1 device; 0 of 7 are free (jobs/1 holds 1, jobs/2 holds 1, jobs/3 holds 1, "
              "jobs/4 holds 1, jobs/5 holds 1, 2 more jobs hold 2)");
}

TEST(Explain, SaysForWhomFreeDevicesAreKept) {
  World world("a: 3xcpu=1 cpu; b: cpu~9 cpu@night");
  world.Run(1, kHour);
  QueuedJob chosen = Job(9, 2);
  chosen.holds = {"waits"};
  world.Submit(chosen);
  world.Submit(Job(2, 4));
  world.Submit(Job(3, 1));
  EXPECT_THAT(
      ReasonsOf(world, 3),
      ElementsAre("needs 1 device; 0 of 6 are free (jobs/1 holds 3)",
                  "1 device is free, but kept for jobs/2, which is ahead; it starts at 17:00 UTC "
                  "at the latest, if jobs end when they are expected to",
                  "1 device is kept for jobs/9, which has been chosen to continue there",
                  "1 device belongs to the reservation night", "1 job is ahead"));
  EXPECT_THAT(ReasonsOf(world, 2).back(),
              "devices are kept for it as they become free: enough at 17:00 UTC, if jobs end when "
              "they are expected to");
}

TEST(Explain, SaysAllHoldsAndTheQuota) {
  World world("a: cpu=1 cpu");
  world.Run(1);
  world.quotas["user:anna"] = {.subject = "user:anna", .devices = 1};
  QueuedJob job = Job(2, 1);
  job.holds = {"waits for job jobs/1 to end; it is running", "backoff until 12:03:07 UTC"};
  world.Submit(job);
  const Answer answer = Ask(world, 2);
  EXPECT_THAT(
      answer.reasons,
      ElementsAre("waits for job jobs/1 to end; it is running", "backoff until 12:03:07 UTC",
                  "needs 1 device; user anna holds 1 of at most 1 (quota user:anna)"));
  EXPECT_EQ(answer.explanation.position, 0);
  EXPECT_THAT(answer.explanation.change, IsEmpty());
  EXPECT_EQ(answer.explanation.start_in_us, std::nullopt);
}

TEST(Explain, SaysWhoHasStillToGiveDevicesBack) {
  World world("a: 2xcpu=1; b: cpu");
  world.Run(1);
  QueuedJob urgent = Job(2, 3);
  urgent.priority = 5;
  world.Submit(urgent);
  EXPECT_THAT(ReasonsOf(world, 2),
              ElementsAre("3 devices are kept for it; jobs/1 has still to give 2 of them back"));
  EXPECT_THAT(ReasonsOf(world, 2),  // the next pass, with the claims in the pool
              ElementsAre("3 devices are kept for it; jobs/1 has still to give 2 of them back"));
}

TEST(Explain, CountsTheJobsAhead) {
  World world("a: cpu=1");
  world.Run(1);
  const int64_t last = 10 + static_cast<int64_t>(kFrontMax);
  for (int64_t id = 2; id <= last; ++id) world.Submit(Job(id, 1));
  EXPECT_EQ(ReasonsOf(world, 3).back(), "1 job is ahead");
  EXPECT_EQ(ReasonsOf(world, last).back(), absl::StrCat(last - 2, " jobs are ahead"));
  EXPECT_EQ(Ask(world, 2).explanation.position, 1);
  EXPECT_EQ(Ask(world, last).explanation.position, last - 1);
}

TEST(Explain, AJobThatNobodyHasSubmittedYetComesLast) {
  World world("a: 2xcpu=1 cpu");
  world.Run(1, kHour);
  const Plan plan = world.MakePlan();
  EXPECT_THAT(plan.record->Explain(world.Input(), Job(0, 1)).reasons, IsEmpty());
  const Explanation wide = plan.record->Explain(world.Input(), Job(0, 2));
  EXPECT_THAT(wide.reasons, ElementsAre("needs 2 devices; 1 of 3 is free (jobs/1 holds 2)"));
  EXPECT_THAT(wide.change, ElementsAre(Pair("devices.count", "1")));
  EXPECT_EQ(wide.start_in_us, kHour);
  EXPECT_EQ(wide.start_basis, "when jobs/1 ends, as expected");
}

TEST(Explain, TheSmallestChangeIsFewerDevices) {
  World world("a: 3xcpu=1 2xcpu");
  world.Run(1);
  world.Submit(Job(2, 4));
  EXPECT_EQ(ChangeOf(world, 2), "with 2 devices it would start now; devices.count=2");
  world.Submit(Job(3, 4));
  EXPECT_EQ(ChangeOf(world, 3), "") << "what is free is kept for jobs/2, which waits for more";
}

TEST(Explain, StagesAreOfferedDevicesOfWhichTheNumberIsAMultiple) {
  World world("a: 3xcpu=1 3xcpu");
  world.Run(1);
  QueuedJob staged = Job(2, 6);
  staged.demand.multiple_of = 2;
  world.Submit(staged);
  EXPECT_EQ(ChangeOf(world, 2), "with 2 devices it would start now; devices.count=2");
  staged.demand.multiple_of = 6;
  world.Submit(staged);
  EXPECT_EQ(ChangeOf(world, 2), "");
}

TEST(Explain, NoChangeIsOfferedThatWouldBeRefused) {
  World world("a: h200=1; b: cpu");
  world.Run(1);
  QueuedJob wide = Job(2, 2, "cpu");
  wide.demand.memory_bytes = 0;
  world.Submit(wide);
  EXPECT_EQ(ChangeOf(world, 2), "with 1 device it would start now; devices.count=1");
  std::vector<std::string> asked;
  const AcceptChange nothing = [&asked](const SpecFields& changes) {
    asked.push_back(changes.front().first);
    return false;
  };
  world.accept = &nothing;
  EXPECT_EQ(ChangeOf(world, 2), "");
  EXPECT_THAT(asked, ::testing::ElementsAre("devices.count"));
}

TEST(Explain, AnotherTypeMixedTypesMemoryAndLabelsMayDo) {
  World world("a: h200=1; b: cpu; c: gpu*8; d[disk=ssd]: gpu*8=1");
  world.Run(1);
  world.Submit(Job(2, 1, "h200"));
  EXPECT_EQ(ChangeOf(world, 2), "on devices of type cpu it would start now; devices.type=cpu");
  world.queue.Remove(JobId{2});
  world.Submit(Job(3, 2));
  EXPECT_EQ(ChangeOf(world, 3), "with 1 device it would start now; devices.count=1");
  world.queue.Remove(JobId{3});
  QueuedJob large = Job(4, 1, "gpu");
  large.demand.memory_bytes = int64_t{80} << 30;
  large.demand.type.clear();
  world.Submit(large);
  EXPECT_EQ(ChangeOf(world, 4),
            "if devices with less memory did, it would start now; "
            "devices.memory=");
  world.queue.Remove(JobId{4});
  QueuedJob labelled = Job(5, 1, "gpu");
  labelled.demand.labels = {{"disk", "ssd"}};
  labelled.demand.type.clear();
  world.Submit(labelled);
  EXPECT_EQ(ChangeOf(world, 5),
            "on workers without these labels it would start now; "
            "devices.labels=");
}

TEST(Explain, ATimeLimitMayLetItUseWhatIsKept) {
  World world("a: 3xcpu=1 cpu");
  world.Run(1, kHour);
  world.running[JobId{1}].may_preempt = false;
  world.Submit(Job(2, 4));
  world.Submit(Job(3, 1));
  EXPECT_EQ(ChangeOf(world, 3),
            "with a time limit of 56m it would start now, on devices that are "
            "kept for jobs/2; time_limit=56m");
  QueuedJob limited = Job(3, 1);
  limited.expected_us = 56 * kMinute;
  world.Submit(limited);
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on a:cpu-3");
}

TEST(Explain, ALargerPriorityOnlyWhereItHelps) {
  World world("a: 2xcpu=1");
  world.Run(1);
  world.Submit(Job(2, 1));
  EXPECT_EQ(ChangeOf(world, 2),
            "with priority 1 it would start as soon as jobs with a smaller one "
            "have stopped; priority=1");
  world.running[JobId{1}].may_preempt = false;
  EXPECT_EQ(ChangeOf(world, 2), "");
}

}  // namespace
}  // namespace trainyard::core
