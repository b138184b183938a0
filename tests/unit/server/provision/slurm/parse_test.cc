// Reads what Slurm 22.05 has printed, and what nobody would print.
#include "server/provision/slurm/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace trainyard::provision::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kPrefix[] = "ty-s1-";

// Captured from squeue -h --me -t all -o '%A|%T|%r|%S|%e|%N|%j'; only the names were changed.
constexpr char kSqueue[] =
    "3|CANCELLED|PartitionConfig|2026-11-28T13:29:10|2026-11-28T13:29:10||ty-s1-lab-3\n"
    "4|FAILED|BadConstraints|2026-11-28T13:29:06|2026-11-28T13:29:06||gres\n"
    "8|FAILED|NonZeroExitCode|2026-11-28T13:29:07|2026-11-28T13:29:07|n3|ty-s1-lab-8\n"
    "2|PENDING|JobHeldUser|N/A|N/A||ty-s1-lab-2\n"
    "1|RUNNING|None|2026-11-28T13:28:52|2026-11-28T13:29:52|n[1-2]|ty-s1-lab-1\n"
    "5|RUNNING|None|2026-11-28T13:29:07|2121-12-17T12:40:23|n1|long\n"
    "6|RUNNING|None|2026-11-28T13:29:07|NONE|n2|ty-s1-lab-6\n";

TEST(SqueueTest, ReadsWhatWasCaptured) {
  const auto pilots = ParseSqueue(kSqueue, kPrefix);
  ASSERT_TRUE(pilots.ok()) << pilots.status();
  ASSERT_THAT(*pilots, SizeIs(5));
  EXPECT_EQ((*pilots)[0].state, ForeignState::kCancelled);
  EXPECT_EQ((*pilots)[1].state, ForeignState::kFailed);
  EXPECT_EQ((*pilots)[1].reason, "NonZeroExitCode");
  EXPECT_EQ((*pilots)[2].state, ForeignState::kWaiting);
  EXPECT_EQ((*pilots)[2].reason, "JobHeldUser");
  EXPECT_EQ((*pilots)[2].start_us, 0);
  const ListedPilot& running = (*pilots)[3];
  EXPECT_EQ(running.name, "ty-s1-lab-1");
  EXPECT_EQ(running.foreign_id, "1");
  EXPECT_EQ(running.reason, "") << "Slurm says None";
  EXPECT_EQ(running.state, ForeignState::kActive);
  const absl::Time start =
      absl::FromCivil(absl::CivilSecond(2026, 11, 28, 13, 28, 52), absl::UTCTimeZone());
  EXPECT_EQ(running.start_us, absl::ToUnixMicros(start));
  EXPECT_EQ(running.expire_us, absl::ToUnixMicros(start + absl::Minutes(1)));
  EXPECT_EQ((*pilots)[4].expire_us, 0) << "it has no limit";
}

TEST(SqueueTest, JobsOfOthersMayLookAsTheyLike) {
  const auto pilots = ParseSqueue(
      "\n|||\nnonsense\n1|RUNNING|a|b|c|d|e|my|job\n\xff\xfe\n"
      "7|PENDING|by | hand|N/A|N/A||ty-s1-lab-7\n7|RUNNING|None|N/A|N/A||ty-s2-lab-7\n",
      kPrefix);
  ASSERT_TRUE(pilots.ok()) << pilots.status();
  ASSERT_THAT(*pilots, SizeIs(1));
  EXPECT_EQ((*pilots)[0].reason, "by | hand");
  EXPECT_TRUE(ParseSqueue("", kPrefix)->empty());
}

TEST(SqueueTest, ABrokenLineOfOursMakesTheListingFail) {
  for (const char* line :
       {"ty-s1-lab-1", "1|RUNNING|ty-s1-lab-1", "x|RUNNING|None|N/A|N/A|n1|ty-s1-lab-1",
        "|RUNNING|None|N/A|N/A|n1|ty-s1-lab-1", "1||None|N/A|N/A|n1|ty-s1-lab-1",
        "1|RUNNING|None|yesterday|N/A|n1|ty-s1-lab-1",
        "1|RUNNING|None|N/A|2026-13-45T99:00:00|n1|ty-s1-lab-1",
        "99999999999999999999|RUNNING|None|N/A|N/A|n1|ty-s1-lab-1"}) {
    const auto pilots = ParseSqueue(absl::StrCat(kSqueue, line, "\n"), kPrefix);
    EXPECT_EQ(pilots.status().code(), absl::StatusCode::kDataLoss) << line;
  }
}

// Every prefix of an output is read or refused, and none is read past its end.
TEST(SqueueTest, AnOutputThatIsCutOffIsNoCrash) {
  const std::string text = kSqueue;
  for (size_t size = 0; size <= text.size(); ++size) {
    (void)ParseSqueue(text.substr(0, size), kPrefix);
    (void)ParseSacct(text.substr(0, size), kPrefix);
    (void)ParseScontrol(text.substr(0, size), kPrefix);
  }
}

TEST(StateTest, AnUnknownWordCountsAsActive) {
  EXPECT_EQ(StateOfWord("CONFIGURING"), ForeignState::kWaiting);
  EXPECT_EQ(StateOfWord("COMPLETING"), ForeignState::kLeaving);
  EXPECT_EQ(StateOfWord("TIMEOUT"), ForeignState::kTimedOut);
  EXPECT_EQ(StateOfWord("SUSPENDED"), ForeignState::kActive);
  EXPECT_EQ(StateOfWord("DREAMING"), ForeignState::kActive);
}

TEST(SacctTest, ReadsTheFirstWordOfTheState) {
  const auto pilots = ParseSacct(
      "17|CANCELLED by 1000|ty-s1-lab-4\n18|TIMEOUT|ty-s1-lab-5\n19|COMPLETED|other\nwhat\n|||\n",
      kPrefix);
  ASSERT_THAT(pilots, SizeIs(2));
  EXPECT_EQ(pilots[0].state, ForeignState::kCancelled);
  EXPECT_EQ(pilots[0].reason, "CANCELLED by 1000");
  EXPECT_EQ(pilots[1].state, ForeignState::kTimedOut);
}

TEST(ScontrolTest, ReadsTheFirstOfEachField) {
  const auto pilot = ParseScontrol(
      "JobId=1 JobName=ty-s1-lab-1 UserId=root(0) GroupId=root(0) MCS_label=N/A "
      "Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState=COMPLETED Reason=None "
      "Dependency=(null) Requeue=0 WorkDir=/ Comment=a JobState=RUNNING JobId=7\n",
      kPrefix);
  ASSERT_TRUE(pilot.has_value());
  EXPECT_EQ(pilot->foreign_id, "1");
  EXPECT_EQ(pilot->state, ForeignState::kCompleted);
  EXPECT_FALSE(ParseScontrol("JobId=1 JobName=other JobState=RUNNING", kPrefix).has_value());
  EXPECT_FALSE(ParseScontrol("slurm_load_jobs error: Invalid job id", kPrefix).has_value());
}

absl::StatusOr<CommandResult> Exit(int code, const std::string& out, const std::string& err) {
  return CommandResult{code, out, err};
}

TEST(SubmissionTest, AnIdIsTakenFromTheLastLine) {
  SubmitResult result = JudgeSubmission("p", Exit(0, "1\n", ""));
  EXPECT_EQ(result.kind, SubmitResult::Kind::kAccepted);
  EXPECT_EQ(result.foreign_id, "1");
  result = JudgeSubmission("p", Exit(0, "welcome to the lab\n4711;cluster\n", ""));
  EXPECT_EQ(result.foreign_id, "4711");
  for (const char* out : {"", "\n", "Submitted batch job 5\n", "-5\n", "5 6\n"}) {
    EXPECT_EQ(JudgeSubmission("p", Exit(0, out, "")).kind, SubmitResult::Kind::kUnknown) << out;
  }
}

TEST(SubmissionTest, OnlyAClearAnswerIsARefusal) {
  // These were captured.
  SubmitResult result = JudgeSubmission(
      "p", Exit(1, "",
                "sbatch: error: invalid partition specified: nosuch\n"
                "sbatch: error: Batch job submission failed: Invalid partition name specified\n"));
  EXPECT_EQ(result.kind, SubmitResult::Kind::kRefused);
  EXPECT_EQ(result.reason, "Batch job submission failed: Invalid partition name specified");
  result = JudgeSubmission("p", Exit(255, "",
                                     "sbatch: unrecognized option '--nonsense'\n"
                                     "Try \"sbatch --help\" for more information\n"));
  EXPECT_EQ(result.kind, SubmitResult::Kind::kRefused);
  EXPECT_EQ(result.reason, "unrecognized option '--nonsense'");
  result = JudgeSubmission("p", Exit(1, "",
                                     "sbatch: error: Batch job submission failed: Unable to "
                                     "contact slurm controller (connect failure)\n"));
  EXPECT_EQ(result.kind, SubmitResult::Kind::kUnknown);
  // These were not.
  for (const char* err : {"sbatch: error: Batch job submission failed: Socket timed out on "
                          "send/recv operation\n",
                          "sbatch: error: Batch job submission failed: Zero Bytes were transmitted "
                          "or received\n",
                          "", "Segmentation fault\n"}) {
    EXPECT_EQ(JudgeSubmission("p", Exit(1, "", err)).kind, SubmitResult::Kind::kUnknown) << err;
  }
  EXPECT_EQ(JudgeSubmission("p", absl::DeadlineExceededError("killed")).kind,
            SubmitResult::Kind::kUnknown);
  EXPECT_EQ(JudgeSubmission("p", absl::NotFoundError("cannot execute 'sbatch'")).kind,
            SubmitResult::Kind::kRefused);
}

TEST(ErrorLineTest, ControlCharactersAreNotPassedOn) {
  EXPECT_EQ(ErrorLine("sbatch: error: a\x1b[31mb\n"), "a?[31mb");
  EXPECT_EQ(ErrorLine(""), "");
  EXPECT_THAT(ErrorLine(std::string(5000, 'x')), SizeIs(300));
}

}  // namespace
}  // namespace trainyard::provision::slurm
