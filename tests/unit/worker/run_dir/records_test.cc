#include "worker/run_dir/records.h"

#include "common/base/report_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/run_dir/test_support.h"

namespace trainyard::run_dir {
namespace {

using ::testing::HasSubstr;

TEST(Records, EveryOutcomeHasANameAndAnExitCodeOfItsOwn) {
  for (const Outcome outcome : {Outcome::kSucceeded, Outcome::kStopped, Outcome::kUserError,
                                Outcome::kTransient, Outcome::kHardware}) {
    EXPECT_EQ(ParseOutcome(OutcomeName(outcome)).value(), outcome);
    EXPECT_EQ(OutcomeOfExit(ExitCode(outcome), 0), outcome);
  }
  EXPECT_EQ(ExitCode(Outcome::kStopped), 15);
  EXPECT_EQ(ExitCode(Outcome::kTransient), 75);
}

TEST(Records, UnknownExitCodesAndSignalsAreTransient) {
  EXPECT_EQ(OutcomeOfExit(1, 0), Outcome::kTransient);
  EXPECT_EQ(OutcomeOfExit(139, 0), Outcome::kTransient);
  EXPECT_EQ(OutcomeOfExit(0, 9), Outcome::kTransient);
}

// A rank may be a user's program.
TEST(Records, AResultTakesOverOnlyAsMuchAsAReportMayHold) {
  RankResult huge{.outcome = Outcome::kUserError,
                  .reason = std::string(1000, 'R'),
                  .message = std::string(5'000'000, 'm'),
                  .operation = std::string(100'000, 'o')};
  for (int i = 0; i < 3000; ++i) huge.metrics["train." + std::to_string(i)] = i;
  huge.metrics[std::string(kMetricNameBytesMax + 1, 'a')] = 1;
  const auto taken = DecodeRankResult(EncodeRankResult(huge), "result.json");
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->reason.size(), kFailureReasonBytesMax);
  EXPECT_EQ(taken->message.size(), kFailureMessageBytesMax);
  EXPECT_EQ(taken->operation.size(), kFailureMessageBytesMax);
  EXPECT_EQ(taken->metrics.size(), kLastMetricsMax);
  EXPECT_EQ(taken->metrics.begin()->first, "train.0");
}

TEST(Records, FilesSurviveWriteAndRead) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  ASSERT_TRUE(dir.CreateRankDirectory(3).ok());
  Progress progress;
  progress.state = Progress::State::kEvaluating;
  progress.step = 5;
  ASSERT_TRUE(WriteProgress(dir, 3, progress).ok());
  EXPECT_EQ(ReadProgress(dir, 3).value(), progress);
  const RankResult result{.outcome = Outcome::kStopped, .step = 5, .metrics = {{"a", 1.5}}};
  ASSERT_TRUE(WriteRankResult(dir, 3, result).ok());
  EXPECT_EQ(ReadRankResult(dir, 3).value(), result);
  const RankExit exit{.rank = 3, .exit_code = 15, .outcome = Outcome::kStopped};
  ASSERT_TRUE(WriteRankExit(dir, exit).ok());
  EXPECT_EQ(ReadRankExit(dir, 3).value(), exit);
  const AttemptExit attempt{.outcome = Outcome::kStopped, .reason = "cancelled", .ranks = {exit}};
  ASSERT_TRUE(WriteAttemptExit(dir, attempt).ok());
  EXPECT_EQ(ReadAttemptExit(dir).value(), attempt);
  const SupervisorRecord record{.pid = 1};
  ASSERT_TRUE(WriteSupervisorRecord(dir, record).ok());
  EXPECT_EQ(ReadSupervisorRecord(dir).value(), record);
}

TEST(Records, AProgressWithoutHostingIsRead) {
  const auto progress = DecodeProgress(R"({"state":"running","step":3})", "progress.json");
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_TRUE(progress->hosting.empty());
  EXPECT_EQ(progress->hosting_reason, "");
}

TEST(Records, AHostingOfMoreRanksThanAGangMayHaveIsRefused) {
  Progress progress;
  for (int rank = 0; rank < 4097; ++rank) progress.hosting.push_back({.rank = rank % 4096});
  const auto read = DecodeProgress(EncodeProgress(progress), "progress.json");
  EXPECT_THAT(read.status().message(), HasSubstr("lists 4097 ranks; expected at most 4096"));
  progress.hosting.pop_back();
  EXPECT_TRUE(DecodeProgress(EncodeProgress(progress), "progress.json").ok());
  const auto bad = DecodeProgress(R"({"state":"running","hosting":[{"rank":0,"replicas":-1}]})",
                                  "progress.json");
  EXPECT_THAT(bad.status().message(), HasSubstr("hosting[0].replicas"));
}

TEST(Records, MissingFilesAreNotFound) {
  const testing::TempDir folder;
  EXPECT_TRUE(absl::IsNotFound(ReadAttemptExit(RunDir(folder.path())).status()));
}

TEST(Records, MessagesThatAreNotUtf8AreMadeReadable) {
  RankResult result;
  result.message = "bad byte \xff here";
  const auto read = DecodeRankResult(EncodeRankResult(result), "f");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->message, "bad byte \xEF\xBF\xBD here");
}

TEST(Records, ErrorsNameFileFieldAndValue) {
  const auto state = DecodeProgress(R"({"state": "asleep"})", "p.json");
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("'state' is 'asleep'"));
  const auto outcome = DecodeRankExit(R"({"rank": 0, "outcome": "fine"})", "e.json");
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("'outcome' is 'fine'"));
  const auto missing = DecodeAttemptExit("{}", "exit.json");
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("'exit.json' is corrupt: 'outcome' is missing"));
  const auto metric =
      DecodeRankResult(R"({"outcome": "succeeded", "metrics": {"a": "x"}})", "r.json");
  EXPECT_THAT(std::string(metric.status().message()), HasSubstr("'metrics.a' is \"x\""));
  const auto cut = DecodeProgress(R"({"state": "runn)", "p.json");
  EXPECT_TRUE(absl::IsDataLoss(cut.status())) << cut.status();
}

}  // namespace
}  // namespace trainyard::run_dir
