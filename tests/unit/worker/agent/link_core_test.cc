// Tests the link to the scheduler without a thread: which call is due, and what its answer means.
#include "worker/agent/link_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "common/base/errors.h"

namespace trainyard::agent {
namespace {

class ConstantRng : public Rng {
 public:
  uint64_t Next() override { return 0; }
};

class LinkCoreTest : public ::testing::Test {
 protected:
  static Device MakeDevice() {
    Device device;
    device.name = "gpu-0";
    device.type = "h200";
    return device;
  }
  static Report ReportOf(int64_t serial, int64_t revision = 0) {
    Report report;
    report.desired_serial = serial;
    report.desired_revision = revision;
    return report;
  }
  template <typename T>
  T Expect() {
    const LinkCore::Step step = link_.Next();
    const T* found = std::get_if<T>(&step);
    EXPECT_NE(found, nullptr) << "another step: " << step.index();
    return found == nullptr ? T() : *found;
  }
  void Register() {
    link_.SetReport(ReportOf(0), false);
    Expect<LinkCore::Register>();
    link_.Registered("s1", absl::Seconds(15), absl::Seconds(5));
  }

  ConstantRng rng_;
  Session session_;
  Device device_ = MakeDevice();
  LinkCore link_{{device_}, session_, rng_};
};

TEST_F(LinkCoreTest, NothingIsSaidBeforeTheFirstReport) {
  Expect<LinkCore::AwaitReport>();
}

TEST_F(LinkCoreTest, RegistersWithTheHealthThatWasSeenLast) {
  Report report = ReportOf(0);
  Device seen = device_;
  seen.health = Device::Health::kUnmanagedUse;
  report.changed_devices = {seen};
  link_.SetReport(report, false);
  EXPECT_THAT(Expect<LinkCore::Register>().devices, ::testing::ElementsAre(seen));
}

TEST_F(LinkCoreTest, TheNextSyncWaitsForAReportThatHasActedUponTheAnswer) {
  Register();
  EXPECT_EQ(Expect<LinkCore::Sync>().desired_revision, 0);
  const Desired desired = link_.Answered({}, absl::Seconds(100));
  EXPECT_EQ(desired.lease_expire_uptime, absl::Seconds(115));
  Expect<LinkCore::AwaitReport>();
  link_.SetReport(ReportOf(desired.serial, 7), false);
  EXPECT_EQ(Expect<LinkCore::Sync>().desired_revision, 7);
}

TEST_F(LinkCoreTest, OnlyNewsHaveANewSequence) {
  Register();
  EXPECT_EQ(Expect<LinkCore::Sync>().sequence, 1);
  EXPECT_EQ(Expect<LinkCore::Sync>().sequence, 1);
  link_.SetReport(ReportOf(0, 3), false);
  EXPECT_EQ(Expect<LinkCore::Sync>().sequence, 2);
}

TEST_F(LinkCoreTest, TellsHowManyAnswersItHasHeardInThisSession) {
  Register();
  EXPECT_EQ(Expect<LinkCore::Sync>().answers_heard, 0);
  link_.SetReport(ReportOf(link_.Answered({}, absl::ZeroDuration()).serial), false);
  EXPECT_EQ(Expect<LinkCore::Sync>().answers_heard, 1);
  link_.Failed(absl::DeadlineExceededError("no answer"), "s1");
  Expect<LinkCore::Pause>();
  EXPECT_EQ(Expect<LinkCore::Sync>().answers_heard, 1);
  link_.Registered("s2", absl::Seconds(15), absl::Seconds(5));
  EXPECT_EQ(Expect<LinkCore::Sync>().answers_heard, 0);
}

TEST_F(LinkCoreTest, AnUnknownSessionIsForgottenAndRegisteredAnewAtOnce) {
  Register();
  Expect<LinkCore::Sync>();
  link_.Failed(error::UnknownSession("s1"), "s1");
  EXPECT_EQ(session_.Get(), "");
  Expect<LinkCore::Register>();
}

TEST_F(LinkCoreTest, PausesGrowUntilTheServerAnswers) {
  Register();
  absl::Duration last;
  for (int i = 0; i < 10; ++i) {
    Expect<LinkCore::Sync>();
    link_.Failed(absl::UnavailableError("away"), "s1");
    const absl::Duration pause = Expect<LinkCore::Pause>().length;
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, absl::Seconds(3));
    last = pause;
  }
  EXPECT_GT(last, absl::Seconds(1));
  link_.SetReport(ReportOf(link_.Answered({}, absl::ZeroDuration()).serial), false);
  Expect<LinkCore::Sync>();
  link_.Failed(absl::UnavailableError("away"), "s1");
  EXPECT_LT(Expect<LinkCore::Pause>().length, absl::Milliseconds(100));
}

TEST_F(LinkCoreTest, UrgentNewsInterruptASyncUntilTheNextOneIsMade) {
  Register();
  Expect<LinkCore::Sync>();
  link_.SetReport(ReportOf(0, 1), false);
  EXPECT_FALSE(link_.is_interrupted());
  link_.SetReport(ReportOf(0, 2), true);
  EXPECT_TRUE(link_.is_interrupted());
  Expect<LinkCore::Sync>();
  EXPECT_FALSE(link_.is_interrupted());
}

TEST_F(LinkCoreTest, ASyncAfterAnInterruptedOneIsAnsweredAtOnceAndNotInterrupted) {
  Register();
  EXPECT_GT(Expect<LinkCore::Sync>().max_wait, absl::ZeroDuration());
  link_.SetReport(ReportOf(0, 1), true);
  EXPECT_TRUE(link_.is_interrupted());
  EXPECT_EQ(Expect<LinkCore::Sync>().max_wait, absl::ZeroDuration());
  link_.SetReport(ReportOf(0, 2), true);
  EXPECT_FALSE(link_.is_interrupted()) << "each lost answer is followed by one that is heard";

  int64_t serial = link_.Answered({}, absl::ZeroDuration()).serial;
  link_.SetReport(ReportOf(serial, 2), false);
  EXPECT_EQ(Expect<LinkCore::Sync>().max_wait, absl::ZeroDuration()) << "the news go out at once";
  serial = link_.Answered({}, absl::ZeroDuration()).serial;
  link_.SetReport(ReportOf(serial, 2), false);
  EXPECT_GT(Expect<LinkCore::Sync>().max_wait, absl::ZeroDuration()) << "there are no more news";
}

TEST_F(LinkCoreTest, WhileSomethingRunsItReportsMoreOften) {
  Register();
  EXPECT_EQ(Expect<LinkCore::Sync>().max_wait, absl::Seconds(5));
  Report report = ReportOf(0);
  report.attempts.emplace_back();
  link_.SetReport(report, false);
  EXPECT_EQ(Expect<LinkCore::Sync>().max_wait, LinkCore::kProgressInterval);
}

}  // namespace
}  // namespace trainyard::agent
