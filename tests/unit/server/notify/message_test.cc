// Tests what messages say, and that nothing in them becomes a header.
#include "server/notify/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"

namespace trainyard::notify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

core::JobRecord JobOf(const std::string& name, core::JobState state) {
  auto submission = std::make_shared<core::Submission>();
  submission->name = name;
  submission->user = "anna";
  core::JobRecord job;
  job.id = JobId{12};
  job.submission = submission;
  job.state = std::move(state);
  job.attempt = 2;
  job.run_time_us = 7'380'000'000;
  job.progress.step = 939;
  job.metrics.values = {{"test.accuracy", 0.96}, {"train.loss", 0.125}};
  return job;
}

Word EndOf(core::JobRecord job) {
  Word word;
  word.delivery = "d1";
  word.event = "end";
  word.time_us = 1'700'000'000'000'000;
  word.user = "anna";
  word.attempt = job.attempt;
  word.job = std::move(job);
  return word;
}

TEST(Message, SaysWhatHasBecomeOfTheJobAndHowToLook) {
  const auto body =
      nlohmann::json::parse(WebhookBody(EndOf(JobOf("resnet", core::job_fsm::Succeeded{}))));
  EXPECT_EQ(body["event"], "end");
  EXPECT_EQ(body["delivery"], "d1");
  EXPECT_EQ(body["time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(body["job"]["name"], "jobs/12");
  EXPECT_EQ(body["job"]["state"], "SUCCEEDED");
  EXPECT_EQ(body["job"]["metrics"]["train.loss"], 0.125);
  EXPECT_EQ(body["title"], "resnet (jobs/12) succeeded after 2h 03m");
  EXPECT_EQ(body["text"],
            "resnet (jobs/12) succeeded after 2h 03m\nstep 939, attempt 2, 2h 03m of run time\n"
            "test.accuracy 0.96, train.loss 0.125\ntrainyard show 12");
}

TEST(Message, AFailureHasItsReasonAndAnyBytesAreValidJson) {
  Word word = EndOf(JobOf("resnet", core::job_fsm::Failed{}));
  word.job->metrics.values["train.loss"] = std::numeric_limits<double>::quiet_NaN();
  word.failure = core::Failure{core::FailureClass::kNone, "PROGRAM_FAILED",
                               "line\n\xff\"quoted\"" + std::string(5000, 'x'), 7};
  const auto body = nlohmann::json::parse(WebhookBody(word));
  EXPECT_EQ(body["failure"]["reason"], "PROGRAM_FAILED");
  EXPECT_EQ(body["failure"]["exit_code"], 7);
  EXPECT_LT(body["failure"]["message"].get<std::string>().size(), 1000u);
  EXPECT_TRUE(body["job"]["metrics"]["train.loss"].is_null());
}

// The digest is that of `openssl dgst -sha256 -hmac key` over the same text.
TEST(Message, TheSignatureIsOverTimeAndBody) {
  const auto headers = WebhookHeaders("d1", "end", 1'700'000'000, "{}", "key");
  EXPECT_EQ(headers.at("X-Trainyard-Timestamp"), "1700000000");
  EXPECT_EQ(headers.at("X-Trainyard-Signature"),
            "sha256=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae");
  EXPECT_FALSE(WebhookHeaders("d1", "end", 1, "{}", "").contains("X-Trainyard-Signature"));
}

TEST(Message, NothingInAMailBecomesAHeader) {
  const Word word =
      EndOf(JobOf("x\r\nBcc: eve@evil.example\r\n\r\nbody", core::job_fsm::Succeeded{}));
  const std::string mail = MailOf(WebhookBody(word), "anna@lab.example", "trainyard@lab.example");
  const std::string head = mail.substr(0, mail.find("\n\n"));
  EXPECT_THAT(head, HasSubstr("To: anna@lab.example\n"));
  EXPECT_THAT(head, HasSubstr("From: trainyard@lab.example\n"));
  EXPECT_THAT(head, HasSubstr("Subject: [trainyard] x  Bcc: eve@evil.example    body (jobs/12)"));
  EXPECT_THAT(head, Not(HasSubstr("\nBcc")));
  EXPECT_THAT(head, HasSubstr("Message-ID: <d1@trainyard>\n"));
  EXPECT_THAT(mail, HasSubstr("\n\nx\r\nBcc"));
}

TEST(Message, ASubjectThatIsNotAsciiIsEncoded) {
  const std::string mail = MailOf(R"({"title":"Größe \u2713 done","text":"t"})", "a@b", "");
  EXPECT_THAT(mail, HasSubstr("Subject: [trainyard] =?utf-8?B?R3LDtsOfZSDinJMgZG9uZQ==?=\n"));
  EXPECT_FALSE(absl::StartsWith(mail, "From:"));
}

}  // namespace
}  // namespace trainyard::notify
