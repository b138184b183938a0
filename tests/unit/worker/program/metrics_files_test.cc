// Tests the files between which a program's metrics go, whatever the program does with its own.
#include "worker/program/metrics_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::program {
namespace {

using run_dir::TailEnd;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MetricsTailTest : public ::testing::Test {
 protected:
  void Append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  std::string Read(TailEnd end = TailEnd::kGrowing) { return tail_.Read(end).value_or("error"); }

  testing::TempDir dir_;
  const std::string path_ = dir_.File("metrics.jsonl");
  MetricsTail tail_{path_};
};

TEST_F(MetricsTailTest, ATornLineWaitsForItsEnd) {
  EXPECT_EQ(Read(), "") << "there is no file yet";
  Append("one\ntw");
  EXPECT_EQ(Read(), "one\n");
  EXPECT_EQ(Read(), "");
  Append("o\nthr");
  EXPECT_EQ(Read(), "two\n");
  EXPECT_EQ(Read(TailEnd::kFinished), "thr") << "nobody will end it";
  EXPECT_THAT(tail_.TakeTroubles(), IsEmpty());
}

TEST_F(MetricsTailTest, AFileThatWasCutOffIsReadFromItsBeginning) {
  Append("one\ntwo\n");
  EXPECT_EQ(Read(), "one\ntwo\n");
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  Append("new\n");
  EXPECT_EQ(Read(), "new\n");
  EXPECT_THAT(tail_.TakeTroubles(), ElementsAre(HasSubstr("cut off")));
}

TEST_F(MetricsTailTest, TheRestOfAFileThatWasReplacedIsReadToo) {
  Append("one\n");
  EXPECT_EQ(Read(), "one\n");
  Append("two\nhalf");
  ASSERT_EQ(rename(path_.c_str(), dir_.File("old").c_str()), 0);
  Append("three\n");
  EXPECT_EQ(Read(), "two\n");
  EXPECT_EQ(Read(), "half") << "it gets no end any more";
  EXPECT_EQ(Read(), "three\n");
  EXPECT_THAT(tail_.TakeTroubles(), ElementsAre(HasSubstr("replaced")));
  Append("four\n");
  EXPECT_EQ(Read(), "four\n");
}

TEST_F(MetricsTailTest, OnlyARegularFileIsRead) {
  ASSERT_EQ(symlink("/etc/passwd", path_.c_str()), 0);
  EXPECT_EQ(Read(), "error");
  EXPECT_EQ(Read(), "error");
  EXPECT_THAT(tail_.TakeTroubles(), ElementsAre(HasSubstr("not read"))) << "it is told once";
}

TEST_F(MetricsTailTest, MuchIsReadInWholeLines) {
  std::string all;
  for (int i = 0; i < 300'000; ++i) absl::StrAppend(&all, "{\"step\": ", i, "}\n");
  Append(all);
  std::string read;
  while (true) {
    const std::string piece = Read();
    if (piece.empty()) break;
    EXPECT_EQ(piece.back(), '\n');
    EXPECT_LE(piece.size(), static_cast<size_t>(MetricsTail::kChunkBytes));
    read += piece;
  }
  EXPECT_EQ(read, all);
}

TEST(PointsFile, WaitsWhileTheDiskIsFullAndLosesNothing) {
  const testing::TempDir dir;
  TY_CHECK_OK(MakeDirectories(dir.File("disk")));
  auto disk = testing::SmallDisk::Mount(dir.File("disk"), "size=1m");
  if (!disk.ok()) GTEST_SKIP() << disk.status();
  const std::string path = (*disk)->File("metrics.jsonl");
  PointsFile points;
  TY_CHECK_OK(points.Open(path));
  points.Add("one\n");
  EXPECT_TRUE(points.Flush());
  (*disk)->FillSpace();
  std::string much;
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&much, "line ", i, "\n");
  points.Add(much);
  EXPECT_FALSE(points.Flush());
  EXPECT_EQ(ReadFile(path).value(), "one\n") << "no half line is left";
  EXPECT_FALSE(points.Flush());
  EXPECT_THAT(points.TakeTroubles(), ElementsAre(HasSubstr("wait")));
  (*disk)->Free();
  EXPECT_TRUE(points.Flush());
  EXPECT_EQ(ReadFile(path).value(), "one\n" + much);
  EXPECT_THAT(points.TakeTroubles(), ElementsAre(HasSubstr("none is lost")));
}

}  // namespace
}  // namespace trainyard::program
