// Tests what several pods say of a pilot, and what is tidied up.
#include "server/provision/kubernetes/pilots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainyard::provision::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kNow = 100 * kHourUs;

Found Pod(ForeignState state, const std::string& reason = "", int32_t node = 0, int32_t nodes = 1) {
  Found pod;
  pod.pilot = "ty-s1-gpu-1";
  pod.name = PilotWorkerName(pod.pilot, nodes, node);
  pod.uid = absl::StrCat("uid-", node);
  pod.nodes = nodes;
  pod.state = state;
  pod.reason = reason;
  pod.create_us = kNow - kMinuteUs;
  pod.end_us = HasEnded(state) ? kNow - kSecondUs : 0;
  if (state == ForeignState::kActive) {
    pod.has_node = true;
    pod.start_us = kNow - kSecondUs;
    pod.expire_us = kNow + kHourUs + node;
  }
  if (state == ForeignState::kLeaving) pod.delete_us = kNow;
  return pod;
}

Found Job(ForeignState state) {
  Found job = Pod(state, "", 0, 2);
  job.name = job.pilot;
  job.uid = "uid-job";
  return job;
}

// Returns the only pilot.
ListedPilot Only(const Sights& sights) {
  EXPECT_THAT(sights.pilots, SizeIs(1));
  return sights.pilots.empty() ? ListedPilot() : sights.pilots[0];
}

TEST(Pilots, OneOfOnePodIsAsFarAsThat) {
  for (const ForeignState state :
       {ForeignState::kWaiting, ForeignState::kActive, ForeignState::kLeaving,
        ForeignState::kTimedOut, ForeignState::kCompleted, ForeignState::kFailed}) {
    const Sights sights = JoinPilots({Pod(state, "why")}, {}, kNow);
    EXPECT_EQ(Only(sights).state, state);
    EXPECT_EQ(Only(sights).reason, "why");
    EXPECT_EQ(Only(sights).foreign_id, "ty-s1-gpu-1");
    EXPECT_THAT(sights.chores, IsEmpty());
  }
  const ListedPilot active = Only(JoinPilots({Pod(ForeignState::kActive)}, {}, kNow));
  EXPECT_EQ(active.start_us, kNow - kSecondUs);
  EXPECT_EQ(active.expire_us, kNow + kHourUs);
}

TEST(Pilots, OneOfTwoPodsWaitsForBoth) {
  ListedPilot pilot = Only(JoinPilots(
      {Pod(ForeignState::kWaiting, "Unschedulable", 0, 2), Pod(ForeignState::kActive, "", 1, 2)},
      {}, kNow));
  EXPECT_EQ(pilot.state, ForeignState::kWaiting);
  EXPECT_EQ(pilot.reason, "1 of 2 pods have a node: Unschedulable");
  EXPECT_EQ(pilot.start_us, 0);
  // The second pod may be on its way.
  pilot = Only(JoinPilots({Pod(ForeignState::kActive, "", 0, 2)}, {}, kNow));
  EXPECT_EQ(pilot.state, ForeignState::kWaiting);
  pilot = Only(JoinPilots(
      {Pod(ForeignState::kActive, "", 0, 2), Pod(ForeignState::kActive, "x", 1, 2)}, {}, kNow));
  EXPECT_EQ(pilot.state, ForeignState::kActive);
  EXPECT_EQ(pilot.reason, "x");
  EXPECT_EQ(pilot.expire_us, kNow + kHourUs);
}

TEST(Pilots, TheEndOfOnePodEndsAll) {
  const Found lives = Pod(ForeignState::kActive, "", 1, 2);
  for (Found ends : {Pod(ForeignState::kFailed, "Evicted", 0, 2),
                     Pod(ForeignState::kLeaving, "Evicted", 0, 2)}) {
    const Sights sights = JoinPilots({ends, lives}, {}, kNow);
    EXPECT_EQ(Only(sights).state, ForeignState::kLeaving);
    EXPECT_EQ(Only(sights).reason, "ty-s1-gpu-1-n0: Evicted");
    EXPECT_THAT(sights.chores, ElementsAre(Chore{false, "ty-s1-gpu-1-n1", "uid-1", false}));
  }
  // Jobs that are still writing their checkpoints are not disturbed.
  const Sights sights = JoinPilots(
      {Pod(ForeignState::kFailed, "Evicted", 0, 2), Pod(ForeignState::kLeaving, "", 1, 2)}, {},
      kNow);
  EXPECT_EQ(Only(sights).state, ForeignState::kLeaving);
  EXPECT_THAT(sights.chores, IsEmpty());
  const ListedPilot ended = Only(JoinPilots(
      {Pod(ForeignState::kFailed, "Evicted", 0, 2), Pod(ForeignState::kCompleted, "", 1, 2)}, {},
      kNow));
  EXPECT_EQ(ended.state, ForeignState::kFailed);
  EXPECT_EQ(ended.reason, "Evicted");
}

TEST(Pilots, WhatLacksPodsIsTakenBackLater) {
  Found pod = Pod(ForeignState::kActive, "", 0, 2);
  pod.create_us = kNow - kPodsSettleUs;
  EXPECT_THAT(JoinPilots({pod}, {}, kNow).chores, IsEmpty());
  pod.create_us -= 1;
  const Sights sights = JoinPilots({pod}, {}, kNow);
  EXPECT_EQ(Only(sights).state, ForeignState::kLeaving);
  EXPECT_EQ(Only(sights).reason, "only 1 of 2 pods are there");
  EXPECT_THAT(sights.chores, SizeIs(1));
}

TEST(Pilots, AWorkerThatEndedBesideOthersEndsThePod) {
  Found pod = Pod(ForeignState::kActive, "Completed, exit code 0");
  pod.worker_ended = true;
  const Sights sights = JoinPilots({pod}, {}, kNow);
  EXPECT_EQ(Only(sights).state, ForeignState::kLeaving);
  EXPECT_THAT(sights.chores, SizeIs(1));
}

TEST(Pilots, AnImageThatIsNotThereIsGivenUp) {
  Found pod = Pod(ForeignState::kActive, "ImagePullBackOff");
  pod.cannot_begin = true;
  pod.create_us = 1;
  pod.start_us = kNow - kBeginPatienceUs;
  EXPECT_EQ(Only(JoinPilots({pod}, {}, kNow)).state, ForeignState::kActive);
  pod.start_us -= 1;
  const Sights sights = JoinPilots({pod}, {}, kNow);
  EXPECT_EQ(Only(sights).state, ForeignState::kLeaving);
  EXPECT_EQ(Only(sights).reason, "ImagePullBackOff");
  EXPECT_THAT(sights.chores, SizeIs(1));
}

TEST(Pilots, WhatHasEndedGoesLater) {
  Found pod = Pod(ForeignState::kCompleted);
  pod.end_us = kNow - kEndedStaysUs;
  EXPECT_THAT(JoinPilots({pod}, {}, kNow).chores, IsEmpty());
  pod.end_us -= 1;
  EXPECT_THAT(JoinPilots({pod}, {}, kNow).chores,
              ElementsAre(Chore{false, pod.name, pod.uid, false}));
}

TEST(Pilots, ADeadNodeHoldsNoPodForEver) {
  Found pod = Pod(ForeignState::kLeaving);
  pod.delete_us = kNow - kDeadNodeUs;
  EXPECT_THAT(JoinPilots({pod}, {}, kNow).chores, IsEmpty());
  pod.delete_us -= 1;
  EXPECT_THAT(JoinPilots({pod}, {}, kNow).chores,
              ElementsAre(Chore{false, pod.name, pod.uid, true}));
}

TEST(Pilots, AJobIsAsFarAsItsPods) {
  Found job = Job(ForeignState::kWaiting);
  job.reason = "waits in the queue team";
  EXPECT_EQ(Only(JoinPilots({}, {job}, kNow)).reason, "waits in the queue team");
  job = Job(ForeignState::kActive);
  ListedPilot pilot = Only(JoinPilots({}, {job}, kNow));
  EXPECT_EQ(pilot.state, ForeignState::kWaiting);
  EXPECT_EQ(pilot.reason, "its pods are made");
  Found first = Pod(ForeignState::kActive, "", 0, 2);
  Found second = Pod(ForeignState::kActive, "", 1, 2);
  first.is_of_job = second.is_of_job = true;
  pilot = Only(JoinPilots({first, second}, {job}, kNow));
  EXPECT_EQ(pilot.state, ForeignState::kActive);
  EXPECT_EQ(pilot.expire_us, job.expire_us);
  second.cannot_begin = true;
  second.create_us = second.start_us = kNow - kBeginPatienceUs - 1;
  const Sights sights = JoinPilots({first, second}, {job}, kNow);
  EXPECT_EQ(Only(sights).state, ForeignState::kLeaving);
  EXPECT_THAT(sights.chores, ElementsAre(Chore{true, job.name, job.uid, false}));
  // Its end is told by the Job alone.
  pilot = Only(JoinPilots({first}, {Job(ForeignState::kFailed)}, kNow));
  EXPECT_EQ(pilot.state, ForeignState::kFailed);
}

TEST(Pilots, PodsWithoutTheirJobGo) {
  Found pod = Pod(ForeignState::kActive);
  pod.is_of_job = true;
  const Sights sights = JoinPilots({pod}, {}, kNow);
  EXPECT_EQ(Only(sights).reason, "its Job is gone");
  EXPECT_THAT(sights.chores, SizeIs(1));
}

}  // namespace
}  // namespace trainyard::provision::kubernetes
