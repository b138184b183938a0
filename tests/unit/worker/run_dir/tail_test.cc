#include "worker/run_dir/tail.h"

#include "gtest/gtest.h"
#include "tests/unit/worker/run_dir/test_support.h"

namespace trainyard::run_dir {
namespace {

class TailTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { TY_CHECK_OK(ReplaceFile(path_, text)); }
  LineChunk Read(int64_t offset, int64_t max_bytes, TailEnd end = TailEnd::kGrowing) {
    auto chunk = ReadWholeLines(path_, offset, max_bytes, end);
    TY_CHECK_OK(chunk.status());
    return *std::move(chunk);
  }

  testing::TempDir folder_;
  std::string path_ = folder_.path() + "/log";
};

TEST_F(TailTest, AFileThatIsNotThereYetIsEmpty) {
  EXPECT_EQ(Read(0, 100).text, "");
  EXPECT_EQ(Read(7, 100).next_offset, 7);
}

TEST_F(TailTest, TakesOnlyWholeLines) {
  Write("one\ntwo\nthr");
  const LineChunk chunk = Read(0, 100);
  EXPECT_EQ(chunk.text, "one\ntwo\n");
  EXPECT_EQ(chunk.next_offset, 8);
  EXPECT_FALSE(chunk.cut);
  EXPECT_EQ(Read(8, 100).text, "");
  Write("one\ntwo\nthree\n");
  EXPECT_EQ(Read(8, 100).text, "three\n");
  EXPECT_EQ(Read(99, 100).next_offset, 99);
}

TEST_F(TailTest, StopsAtTheLimitBetweenLines) {
  Write("one\ntwo\nthree\n");
  EXPECT_EQ(Read(0, 9).text, "one\ntwo\n");
  EXPECT_EQ(Read(0, 8).text, "one\ntwo\n");
}

TEST_F(TailTest, ALineLongerThanTheLimitComesInPieces) {
  Write("abcdefgh\nx\n");
  const LineChunk first = Read(0, 5);
  EXPECT_EQ(first.text, "abcde");
  EXPECT_TRUE(first.cut);
  const LineChunk second = Read(first.next_offset, 5);
  EXPECT_EQ(second.text, "fgh\n");
  EXPECT_FALSE(second.cut);
}

TEST_F(TailTest, TheRestOfAFinishedFileIsTaken) {
  Write("one\ntw");
  const LineChunk chunk = Read(0, 100, TailEnd::kFinished);
  EXPECT_EQ(chunk.text, "one\ntw");
  EXPECT_TRUE(chunk.cut);
  EXPECT_EQ(chunk.next_offset, 6);
  EXPECT_EQ(Read(0, 5, TailEnd::kFinished).text, "one\n");
}

}  // namespace
}  // namespace trainyard::run_dir
