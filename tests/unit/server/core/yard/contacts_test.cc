// Tests sessions and leases, and how a worker shows that it hears the server.
#include "server/core/yard/contacts.h"

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

constexpr int64_t kLease = 15 * kSecond;

Now AtSecond(int64_t seconds) {
  return {.wall_us = (1'790'000'000 + seconds) * kSecond, .uptime_us = seconds * kSecond};
}

SyncReport ReportOf(int64_t sequence, int64_t revision, std::optional<int64_t> heard = {}) {
  SyncReport report;
  report.session = "s";
  report.sequence = sequence;
  report.desired_revision = revision;
  report.answers_heard = heard;
  return report;
}

class ContactsTest : public ::testing::Test {
 protected:
  ContactsTest() { contacts_.Open("lab-1", "s", AtSecond(0)); }

  void Take(const SyncReport& report, int64_t seconds) {
    contacts_.NoteReport("lab-1", report, AtSecond(seconds));
    contacts_.TakeReport("lab-1", report);
  }
  bool Orders(int64_t number) {
    DesiredAttempt attempt;
    attempt.attempt = {JobId{number}, 1};
    return contacts_.GiveOrders("lab-1", {attempt});
  }
  const Contact& contact() const { return contacts_.of("lab-1"); }

  Contacts contacts_{kLease};
};

TEST_F(ContactsTest, ASessionLivesUntilItIsClosedOrAnotherIsOpened) {
  ASSERT_NE(contacts_.WorkerOf("s"), nullptr);
  EXPECT_EQ(*contacts_.WorkerOf("s"), "lab-1");
  contacts_.Open("lab-1", "t", AtSecond(1));
  EXPECT_EQ(contacts_.WorkerOf("s"), nullptr);
  contacts_.Close("lab-1");
  EXPECT_EQ(contacts_.WorkerOf("t"), nullptr);
  EXPECT_EQ(contact().last_seen_wall_us, AtSecond(1).wall_us)
      << "it is still known when it was seen";
}

TEST_F(ContactsTest, AReportRenewsTheLeaseWhileTheWorkerCountsNewAnswers) {
  Take(ReportOf(1, 0, 0), 1);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 1 * kSecond + kLease)
      << "it has heard of the session";
  Take(ReportOf(2, 0, 0), 5);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 1 * kSecond + kLease);
  EXPECT_TRUE(contact().is_deaf());
  Take(ReportOf(3, 0, 1), 7);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 7 * kSecond + kLease);
  EXPECT_FALSE(contact().is_deaf());
  Take(ReportOf(3, 0, 1), 8);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 7 * kSecond + kLease);
}

TEST_F(ContactsTest, AWorkerThatDoesNotCountHearsWhileItTakesItsOrders) {
  Take(ReportOf(1, 0), 1);
  EXPECT_TRUE(Orders(1));
  Take(ReportOf(2, contact().desired_revision), 2);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 2 * kSecond + kLease);
  const int64_t old_revision = contact().desired_revision;
  EXPECT_TRUE(Orders(2));
  Take(ReportOf(3, old_revision), 3);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 2 * kSecond + kLease) << "it has not taken these";
  Take(ReportOf(4, contact().desired_revision), 4);
  EXPECT_EQ(contacts_.LeaseDeadline("lab-1"), 4 * kSecond + kLease);
}

TEST_F(ContactsTest, AnAnswerToTheLastReportMayHaveRenewedTheLeaseOfTheRanks) {
  Take(ReportOf(1, 0, 0), 1);
  Take(ReportOf(2, 0, 0), 9);
  contacts_.LoseTouch("lab-1");
  EXPECT_EQ(contact().unreachable_since_us, 9 * kSecond + kLease);
}

TEST_F(ContactsTest, TheSameOrdersAreNoNewRevision) {
  Take(ReportOf(1, 0), 1);
  EXPECT_TRUE(Orders(1));
  const int64_t revision = contact().desired_revision;
  EXPECT_FALSE(Orders(1));
  EXPECT_EQ(contact().desired_revision, revision);
  EXPECT_TRUE(Orders(2));
  EXPECT_GT(contact().desired_revision, revision);
  contacts_.Close("lab-1");
  EXPECT_FALSE(Orders(3)) << "nobody is there to take them";
}

TEST_F(ContactsTest, AfterAStartEveryWorkerHasOneLeaseToComeBack) {
  WorkerRecord record;
  record.name = "lab-2";
  record.last_seen_us = AtSecond(-100).wall_us;
  contacts_.Expect(record, AtSecond(3));
  EXPECT_EQ(contacts_.LeaseDeadline("lab-2"), 3 * kSecond + kLease);
  EXPECT_EQ(contacts_.of("lab-2").last_seen_wall_us, AtSecond(-100).wall_us);
}

}  // namespace
}  // namespace trainyard::core
