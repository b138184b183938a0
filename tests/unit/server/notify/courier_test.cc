// Tests deliveries with a receiver that answers over HTTP, and with a program in place of sendmail.
#include "server/notify/courier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <csignal>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "server/notify/derive.h"
#include "server/notify/message.h"
#include "server/store/memory_store.h"
#include "tests/testing/http_receiver.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::notify {
namespace {

using store::DeliveryRecord;
using store::DeliveryState;
using ::testing::HasSubstr;

// A time behind all others.
constexpr int64_t kForever = int64_t{1} << 60;

class CourierTest : public ::testing::Test {
 protected:
  CourierTest() {
    std::signal(SIGPIPE, SIG_IGN);  // as in the server
    store_ = *store::NotifyStore::Open(dir_.File("notify.db"));
    options_.rules.webhooks = *ParseHostRule("127.0.0.1");
    options_.first_retry = absl::Milliseconds(20);
    options_.last_retry = absl::Milliseconds(100);
  }

  void Start() {
    courier_.emplace(options_, *store_, events_, board_, *Clock::Real());
    courier_->Start();
  }

  store::TargetRecord Target(const std::string& name, const std::string& webhook,
                             const std::string& mail = "") {
    store::TargetRecord target{"anna", name, webhook, mail, kDefaultEvents, "key", 0};
    EXPECT_TRUE(store_->AddTarget(target).ok());
    return target;
  }

  // Puts a message into the outbox, as the thread that derives them does.
  void Tell(const std::string& id, const store::TargetRecord& target) {
    DeliveryRecord delivery;
    delivery.id = id;
    delivery.user = target.user;
    delivery.target = target.name;
    delivery.webhook = target.webhook;
    delivery.mail = target.mail;
    delivery.event = "end";
    delivery.message = absl::StrCat(R"({"delivery":")", id, R"(","title":"t","text":"told"})");
    delivery.create_us = absl::ToUnixMicros(Clock::Real()->Now());
    ASSERT_TRUE(store_->AddDeliveries({delivery}, 0).ok());
  }

  DeliveryRecord Last() { return store_->ListDeliveries("anna", "", 1)->at(0); }
  bool WaitForState(DeliveryState state) {
    return testing::WaitUntil([&] { return Last().state == state; });
  }

  testing::TempDir dir_;
  testing::HttpReceiver receiver_;
  std::unique_ptr<store::NotifyStore> store_;
  store::MemoryStore events_;
  runtime::Notifier notifier_;
  runtime::Board board_{notifier_};
  Courier::Options options_;
  std::optional<Courier> courier_;
};

TEST_F(CourierTest, AMessageIsTriedAgainUnderTheSameIdUntilItIsTaken) {
  receiver_.AnswerWith({500, -1, 429});
  Tell("d1", Target("hook", receiver_.Url()));
  Start();
  ASSERT_TRUE(WaitForState(DeliveryState::kDelivered)) << Last().result;
  const auto requests = receiver_.requests();
  ASSERT_EQ(requests.size(), 4u);
  for (const auto& request : requests) {
    EXPECT_EQ(request.headers.at("x-trainyard-delivery"), "d1");
    EXPECT_EQ(request.headers.at("content-type"), "application/json");
    const std::string time = request.headers.at("x-trainyard-timestamp");
    EXPECT_EQ(request.headers.at("x-trainyard-signature"),
              WebhookHeaders("d1", "end", std::stoll(time), request.body, "key")
                  .at("X-Trainyard-Signature"));
  }
  EXPECT_EQ(Last().tries, 4);
  EXPECT_EQ(Last().result, "HTTP 200");
  EXPECT_EQ(Last().message, "") << "what was delivered is not kept";
}

TEST_F(CourierTest, ARedirectIsNotFollowedAndARefusalIsFinal) {
  receiver_.AnswerWith({302});
  Tell("d1", Target("hook", receiver_.Url()));
  Start();
  ASSERT_TRUE(WaitForState(DeliveryState::kGivenUp));
  EXPECT_EQ(Last().result, "HTTP 302, a redirect, which is not followed");
  EXPECT_EQ(receiver_.requests().size(), 1u);
  EXPECT_EQ(receiver_.requests()[0].path, "/hook");
}

TEST_F(CourierTest, NothingIsSentWhereTheRulesForbidIt) {
  options_.rules.webhooks = *ParseHostRule("on");
  Tell("d1", Target("hook", receiver_.Url()));
  Start();
  ASSERT_TRUE(WaitForState(DeliveryState::kGivenUp));
  EXPECT_THAT(Last().result, HasSubstr("sends nothing to '127.0.0.1'"));
  EXPECT_TRUE(receiver_.requests().empty());
}

TEST_F(CourierTest, AMessageThatNobodyTakesIsGivenUpInTheEnd) {
  options_.give_up_after = absl::ZeroDuration();
  // Nobody listens on the port of a receiver that has gone.
  std::string url;
  {
    const testing::HttpReceiver gone;
    url = gone.Url();
  }
  Tell("d1", Target("hook", url));
  Start();
  ASSERT_TRUE(WaitForState(DeliveryState::kGivenUp));
  EXPECT_NE(Last().result, "");
}

TEST_F(CourierTest, WhatWaitsSurvivesARestart) {
  receiver_.AnswerWith({500});
  options_.first_retry = options_.last_retry = absl::Milliseconds(300);
  Tell("d1", Target("hook", receiver_.Url()));
  Start();
  ASSERT_TRUE(receiver_.WaitFor(1));
  courier_->Stop();
  store_.reset();
  store_ = *store::NotifyStore::Open(dir_.File("notify.db"));
  EXPECT_EQ(Last().state, DeliveryState::kPending);
  Start();
  ASSERT_TRUE(WaitForState(DeliveryState::kDelivered));
  EXPECT_EQ(receiver_.requests().back().headers.at("x-trainyard-delivery"), "d1");
}

// Each thread reads what is due before it knows what the others have just sent.
TEST_F(CourierTest, ManyThreadsSendEachMessageOnce) {
  constexpr size_t kMessages = 300;
  for (size_t i = 0; i < kMessages; ++i) {
    store::TargetRecord target{absl::StrCat("user-", i % 6),
                               "hook",
                               receiver_.Url(absl::StrCat("/", i % 12)),
                               "",
                               kDefaultEvents,
                               "key",
                               0};
    Tell(absl::StrCat("d", i), target);
  }
  Start();
  ASSERT_TRUE(receiver_.WaitFor(kMessages));
  ASSERT_TRUE(testing::WaitUntil([&] { return store_->Due(kForever)->empty(); }));
  courier_->Stop();
  std::set<std::string> sent;
  for (const auto& request : receiver_.requests()) {
    EXPECT_TRUE(sent.insert(request.headers.at("x-trainyard-delivery")).second);
  }
  EXPECT_EQ(sent.size(), kMessages);
}

TEST_F(CourierTest, ADeadReceiverDelaysNoOther) {
  const auto dead = Target("dead", "http://127.0.0.1:1/");
  for (int i = 0; i < 20; ++i) Tell(absl::StrCat("dead-", i), dead);
  Tell("d1", Target("hook", receiver_.Url()));
  Start();
  ASSERT_TRUE(receiver_.WaitFor(1));
  EXPECT_EQ(receiver_.requests()[0].headers.at("x-trainyard-delivery"), "d1");
}

TEST_F(CourierTest, MailGoesToSendmailWithArgumentsThatAreFixed) {
  options_.sendmail = dir_.File("sendmail");
  options_.mail_from = "trainyard@lab.example";
  ASSERT_TRUE(WriteFileAtomically(options_.sendmail,
                                  absl::StrCat("#!/bin/sh\necho \"$@\" > ", dir_.File("args"),
                                               "\ncat > ", dir_.File("mail"), "\n"),
                                  0755)
                  .ok());
  Start();
  const auto sent = courier_->Test(Target("mail", "", "anna@lab.example"));
  EXPECT_EQ(sent.state, DeliveryState::kDelivered) << sent.result;
  EXPECT_EQ(*ReadFile(dir_.File("args")), "-i -t\n");
  EXPECT_THAT(*ReadFile(dir_.File("mail")), HasSubstr("To: anna@lab.example\n"));
  EXPECT_THAT(*ReadFile(dir_.File("mail")), HasSubstr("Subject: [trainyard] Trainyard: a test"));
}

TEST_F(CourierTest, AFailureOfSendmailIsToldWithItsWords) {
  options_.sendmail = dir_.File("sendmail");
  ASSERT_TRUE(
      WriteFileAtomically(options_.sendmail, "#!/bin/sh\necho no route >&2\nexit 67\n", 0755).ok());
  Start();
  const auto sent = courier_->Test(Target("mail", "", "anna@lab.example"));
  EXPECT_EQ(sent.state, DeliveryState::kGivenUp);
  EXPECT_EQ(sent.result, "sendmail exited with code 67: no route");
  courier_->Stop();
  options_.sendmail = dir_.File("missing");
  Start();
  EXPECT_THAT(courier_->Test(Target("mail-2", "", "b@lab.example")).result,
              HasSubstr("cannot execute"));
}

TEST(RetryDelay, GrowsToItsLimit) {
  const auto delay = [](int tries) { return RetryDelay(tries, absl::Seconds(2), absl::Hours(1)); };
  EXPECT_EQ(delay(1), absl::Seconds(2));
  EXPECT_EQ(delay(2), absl::Seconds(8));
  EXPECT_EQ(delay(6), absl::Seconds(2048));
  EXPECT_EQ(delay(7), absl::Hours(1));
  EXPECT_EQ(delay(1000), absl::Hours(1));
}

// The rest of the file tests what is told of each event.

core::EventRecord Event(const std::string& type, int64_t time_us = 100) {
  core::EventRecord event;
  event.sequence = 7;
  event.time_us = time_us;
  event.type = type;
  return event;
}

Subject SubjectWith(core::JobState state, std::optional<core::AttemptState> attempt = {}) {
  auto submission = std::make_shared<core::Submission>();
  submission->uid = "u-1";
  submission->user = "anna";
  Subject subject;
  subject.job.id = JobId{3};
  subject.job.submission = submission;
  subject.job.state = std::move(state);
  subject.job.attempt = 2;
  subject.job.start_us = 100;
  if (attempt.has_value()) {
    auto record = std::make_shared<core::AttemptRecord>();
    record->id = {JobId{3}, 2};
    record->state = *attempt;
    subject.attempt = record;
  }
  return subject;
}

std::string Told(const core::EventRecord& event, const Subject& subject, uint32_t wanted) {
  const store::TargetRecord target{"anna", "hook", "http://a/", "", wanted, "", 50};
  const auto deliveries = DeliveriesOf(event, subject, {target});
  return deliveries.empty() ? "" : deliveries[0].event;
}

core::AttemptState FailedBy(const std::string& reason) {
  return core::attempt_fsm::Failed{{core::FailureClass::kNone, reason, "why", 0}};
}

TEST(Derive, EachEventIsToldToThoseWhoWantIt) {
  const uint32_t all = kStart | kEnd | kFailure | kStuck;
  const Subject running = SubjectWith(core::job_fsm::Running{});
  EXPECT_EQ(Told(Event("JOB_RUNNING"), running, all), "start");
  EXPECT_EQ(Told(Event("JOB_RUNNING"), running, kEnd), "");
  EXPECT_EQ(Told(Event("JOB_RUNNING", 200), running, all), "") << "it ran before";
  Subject ended = SubjectWith(core::job_fsm::Succeeded{});
  ended.job.end_us = 100;
  EXPECT_EQ(Told(Event("JOB_SUCCEEDED"), ended, kDefaultEvents), "end");
  EXPECT_EQ(Told(Event("JOB_SUCCEEDED"), ended, kFailure), "");
  const Subject retried = SubjectWith(core::job_fsm::Queued{}, FailedBy("PROGRAM_FAILED"));
  EXPECT_EQ(Told(Event("ATTEMPT_FAILED"), retried, kDefaultEvents), "failure");
  const Subject stuck = SubjectWith(core::job_fsm::Queued{}, FailedBy("RANK_STUCK"));
  EXPECT_EQ(Told(Event("ATTEMPT_FAILED"), stuck, all), "stuck");
  EXPECT_EQ(Told(Event("ATTEMPT_FAILED"), stuck, kDefaultEvents), "failure");
}

TEST(Derive, TheLastFailureIsToldAsTheEndAlone) {
  Subject ended = SubjectWith(core::job_fsm::Failed{}, FailedBy("PROGRAM_FAILED"));
  ended.job.end_us = 100;
  EXPECT_EQ(Told(Event("ATTEMPT_FAILED"), ended, kDefaultEvents), "");
  EXPECT_EQ(Told(Event("ATTEMPT_FAILED"), ended, kFailure), "failure");
}

TEST(Derive, ATargetHearsNothingOfWhatWasBeforeIt) {
  EXPECT_EQ(Told(Event("JOB_RUNNING", 40), SubjectWith(core::job_fsm::Running{}), kStart), "");
}

TEST(Derive, TheIdFollowsFromEventAndTarget) {
  const Subject subject = SubjectWith(core::job_fsm::Succeeded{});
  const store::TargetRecord one{"anna", "one", "http://a/", "", kEnd, "", 0};
  const store::TargetRecord two{"anna", "two", "http://b/", "", kEnd, "", 0};
  std::set<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    for (const auto& delivery : DeliveriesOf(Event("JOB_SUCCEEDED"), subject, {one, two})) {
      ids.insert(delivery.id);
    }
  }
  EXPECT_EQ(ids.size(), 2u) << "the same event gives the same ids";
  EXPECT_EQ(DeliveriesOf(Event("JOB_SUCCEEDED"), subject, {one, one}).size(), 1u);
}

}  // namespace
}  // namespace trainyard::notify
