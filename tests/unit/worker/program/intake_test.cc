// Tests what is taken over of a program's metrics and checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/temp_dir.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/program/checkpoint_intake.h"
#include "worker/program/metrics_intake.h"

namespace trainyard::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNow = 1'790'000'000'000'000;

std::vector<run_dir::MetricPoint> Points(MetricsIntake& intake, absl::string_view lines) {
  std::string text;
  intake.Take(lines, kNow, text);
  std::vector<run_dir::MetricPoint> points;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    points.push_back(*run_dir::DecodeMetricLine(line, "points"));
  }
  return points;
}

TEST(MetricsIntake, TakesBothForms) {
  MetricsIntake intake(0);
  const auto points = Points(intake,
                             "{\"step\": 1, \"name\": \"loss\", \"value\": 0.5}\n"
                             "{\"step\": 2, \"metrics\": {\"loss\": 0.25}, \"time\": 1.5}\n");
  EXPECT_THAT(points, ElementsAre(run_dir::MetricPoint{1, "loss", 0.5, kNow},
                                  run_dir::MetricPoint{2, "loss", 0.25, 1'500'000}));
  EXPECT_EQ(intake.step(), 2);
  EXPECT_EQ(intake.last().at("loss"), 0.25);
  EXPECT_THAT(intake.TakeMistakes(), IsEmpty());
}

TEST(MetricsIntake, AStepMayBeLeftOutAndALengthMayBeTold) {
  MetricsIntake intake(0);
  const auto points =
      Points(intake, "{\"step\": 7}\n{\"total_steps\": 100}\n{\"metrics\": {\"a\": 1}}\n");
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].step, 7);
  EXPECT_EQ(intake.total_steps(), 100);
}

TEST(MetricsIntake, NumbersThatJsonLacksAreTaken) {
  MetricsIntake intake(0);
  const auto points =
      Points(intake, "{\"metrics\": {\"a\": NaN, \"b\": -Infinity, \"NaN\": true}}\n");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].name, "NaN");
  EXPECT_EQ(points[0].value, 1);
  EXPECT_TRUE(std::isnan(points[1].value));
  EXPECT_TRUE(std::isinf(points[2].value));
  EXPECT_EQ(WithNumbersAsTexts("\"a\\\"NaN\" NaN"), "\"a\\\"NaN\" \"nan\"");
}

TEST(MetricsIntake, LaterRanksHaveTheirNumberInTheNames) {
  MetricsIntake intake(3);
  EXPECT_EQ(Points(intake, "{\"metrics\": {\"loss\": 1}}\n")[0].name, "loss.rank3");
}

TEST(MetricsIntake, ALineWithAMistakeCostsNoOther) {
  MetricsIntake intake(0);
  const auto points = Points(intake,
                             "oops\n[1]\n{\"step\": -1}\n{\"metrics\": [1]}\n{\"name\": \"a\"}\n"
                             "{\"metrics\": {\"a\": \"x\", \"b\": 2}}\nmore\n\n{}\n");
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].name, "b");
  EXPECT_EQ(intake.refused_lines(), 7);
  const auto mistakes = intake.TakeMistakes();
  EXPECT_THAT(mistakes,
              ::testing::Contains(HasSubstr("line 1 of metrics.jsonl is no JSON object")));
  EXPECT_THAT(mistakes, ::testing::Contains(HasSubstr("value of 'a' that is no number")));
  EXPECT_THAT(intake.TakeMistakes(), IsEmpty()) << "each is told once";
}

TEST(MetricsIntake, NamesThatTerminalsWouldObeyAreRefused) {
  MetricsIntake intake(0);
  EXPECT_THAT(Points(intake, "{\"metrics\": {\"a\\u001b[31m\": 1, \"b\\u0000\": 2}}\n"), IsEmpty());
  EXPECT_THAT(intake.TakeMistakes(), ElementsAre(HasSubstr("control characters")));
}

TEST(MetricsIntake, MistakesOfManyKindsAreToldOnlyAHundredTimes) {
  MetricsIntake intake(0);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_THAT(Points(intake, absl::StrCat("{\"metrics\": {\"m", i, "\": []}}\n")), IsEmpty());
  }
  EXPECT_EQ(intake.TakeMistakes().size(), 100u);
  EXPECT_EQ(intake.refused_lines(), 1000);
}

TEST(CheckpointNames, TellTheirStep) {
  EXPECT_EQ(StepOfName("step-100"), 100);
  EXPECT_EQ(StepOfName("checkpoint_100.pt"), 100);
  EXPECT_EQ(StepOfName("epoch=3-step=100"), 100);
  EXPECT_EQ(StepOfName("last"), std::nullopt);
  EXPECT_EQ(StepOfName("99999999999999999999"), std::nullopt);
  EXPECT_TRUE(IsUnfinished("a.tmp"));
  EXPECT_TRUE(IsUnfinished(".a"));
  EXPECT_FALSE(IsUnfinished("a"));
}

class CheckpointIntakeTest : public ::testing::Test {
 protected:
  CheckpointIntakeTest() { TY_CHECK_OK(MakeDirectories(dir_.File("from"))); }
  void Put(const std::string& path, const std::string& content) {
    const std::string full = JoinPath(dir_.File("from"), path);
    TY_CHECK_OK(MakeDirectories(full.substr(0, full.rfind('/'))));
    TY_CHECK_OK(ReplaceFile(full, content));
  }

  testing::TempDir dir_;
  CheckpointIntake intake_{dir_.File("from"), dir_.File("to")};
};

TEST_F(CheckpointIntakeTest, FoldersAndFilesBecomeCheckpoints) {
  Put("step-5/model.pt", "m");
  Put("step-5/optimizer.pt", "o");
  Put("checkpoint-9.pt", "c");
  Put("last.pt", "l");
  Put("step-11.tmp/model.pt", "half");
  EXPECT_EQ(intake_.Take(7), 3);
  EXPECT_THAT(checkpoint::ListCheckpoints(dir_.File("to")), ElementsAre(5, 7, 9));
  const auto first = checkpoint::VerifyCheckpoint(checkpoint::CheckpointPath(dir_.File("to"), 5));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->files.size(), 2u);
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(checkpoint::CheckpointPath(dir_.File("to"), 9)).ok());
  EXPECT_EQ(intake_.last_step(), 9);
  EXPECT_EQ(intake_.Take(7), 0) << "they were moved";
}

TEST_F(CheckpointIntakeTest, WhatIsNoCheckpointStaysAndIsToldOnce) {
  Put("step-5/model.pt", "m");
  ASSERT_EQ(symlink("/etc/passwd", dir_.File("from/step-5/nested").c_str()), 0);
  TY_CHECK_OK(MakeDirectories(dir_.File("from/step-6")));
  ASSERT_EQ(symlink("/etc/passwd", dir_.File("from/step-7").c_str()), 0);
  EXPECT_EQ(intake_.Take(0), 0);
  const auto mistakes = intake_.TakeMistakes();
  ASSERT_EQ(mistakes.size(), 3u);
  EXPECT_THAT(mistakes[0], HasSubstr("'nested' is no file with a plain name"));
  EXPECT_THAT(mistakes[1], HasSubstr("its folder is empty"));
  EXPECT_EQ(intake_.Take(0), 0);
  EXPECT_THAT(intake_.TakeMistakes(), IsEmpty());
  EXPECT_TRUE(FileExists(dir_.File("from/step-5/model.pt")));
  EXPECT_THAT(checkpoint::ListCheckpoints(dir_.File("to")), IsEmpty());
}

TEST_F(CheckpointIntakeTest, AFolderMayHaveFoldersInIt) {
  Put("epoch=3-step=5/shards/0/model.pt", "a");
  Put("epoch=3-step=5/shards/1/model.pt", "b");
  Put("epoch=3-step=5/.metadata", "m");
  EXPECT_EQ(intake_.Take(0), 1);
  EXPECT_THAT(intake_.TakeMistakes(), IsEmpty());
  const auto made = checkpoint::VerifyCheckpoint(checkpoint::CheckpointPath(dir_.File("to"), 5));
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->files.size(), 3u);
  EXPECT_EQ(made->files[2].name, "shards/1/model.pt");
  Put("../to/step-5/shards/2", "added");
  EXPECT_FALSE(checkpoint::VerifyCheckpoint(checkpoint::CheckpointPath(dir_.File("to"), 5)).ok());
}

TEST_F(CheckpointIntakeTest, HostileNamesAreRefusedAndToldInPlainText) {
  Put("step-5/red\x1b[31m", "m");
  Put("step-6/MANIFEST", "m");
  Put("step-7/.bashrc", "m");
  Put("step-8/\xff", "m");
  EXPECT_EQ(intake_.Take(0), 0);
  const auto mistakes = intake_.TakeMistakes();
  ASSERT_EQ(mistakes.size(), 4u);
  EXPECT_THAT(mistakes[0], HasSubstr("'red?[31m' is no file with a plain name"));
  EXPECT_THAT(checkpoint::ListCheckpoints(dir_.File("to")), IsEmpty());
}

TEST(CheckpointIntakeOnAFullDisk, TheCheckpointWaitsAndIsNotLost) {
  const testing::TempDir dir;
  TY_CHECK_OK(MakeDirectories(dir.File("disk")));
  auto disk = testing::SmallDisk::Mount(dir.File("disk"), "size=1m");
  if (!disk.ok()) GTEST_SKIP() << disk.status();
  TY_CHECK_OK(MakeDirectories((*disk)->File("from/step-5")));
  TY_CHECK_OK(MakeDirectories((*disk)->File("to")));
  TY_CHECK_OK(ReplaceFile((*disk)->File("from/step-5/model.pt"), "m"));
  CheckpointIntake intake((*disk)->File("from"), (*disk)->File("to"));
  (*disk)->FillSpace();
  EXPECT_EQ(intake.Take(0), 0);
  EXPECT_THAT(intake.TakeMistakes(), ElementsAre(HasSubstr("'step-5' waits")));
  EXPECT_EQ(ReadFile((*disk)->File("from/step-5/model.pt")).value_or(""), "m");
  (*disk)->Free();
  int made = 0;
  for (int i = 0; i < 100 && made == 0; ++i) made = intake.Take(0);
  EXPECT_EQ(made, 1);
  EXPECT_THAT(checkpoint::ListCheckpoints((*disk)->File("to")), ElementsAre(5));
}

TEST_F(CheckpointIntakeTest, AStepIsTakenOnce) {
  Put("step-5/model.pt", "first");
  EXPECT_EQ(intake_.Take(0), 1);
  Put("step-5/model.pt", "second");
  EXPECT_EQ(intake_.Take(0), 0);
  EXPECT_THAT(intake_.TakeMistakes(), ElementsAre(HasSubstr("one of step 5 already")));
}

}  // namespace
}  // namespace trainyard::program
