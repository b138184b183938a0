// Tests that scalars are read from event files, torn and damaged ones too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
#include "worker/program/event_folder.h"
#include "worker/program/event_records.h"
#include "worker/program/metrics_taker.h"

namespace trainyard::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Number>
std::string Bytes(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string Field(int number, const std::string& bytes) {
  TY_CHECK(bytes.size() < 128);
  return std::string(1, static_cast<char>(number * 8 + 2)) +
         std::string(1, static_cast<char>(bytes.size())) + bytes;
}

std::string Framed(const std::string& event) {
  const std::string length = Bytes<uint64_t>(event.size());
  return length + Bytes(MaskedCrc32c(length)) + event + Bytes(MaskedCrc32c(event));
}

std::string Event(char step, const std::string& value) {
  return Framed(std::string("\x09") + Bytes(1.5) + "\x10" + step + Field(5, Field(1, value)));
}

std::string Simple(const std::string& tag, float value) {
  return Field(1, tag) + "\x15" + Bytes(value);
}

TEST(EventRecords, SimpleValuesAndTensorsOfOneNumberAreRead) {
  std::vector<Scalar> scalars;
  const auto read = [&scalars](const std::string& value) {
    const std::string record = Event(7, value);
    const Record found = NextRecord(record, 1000);
    EXPECT_EQ(found.kind, Record::Kind::kWhole);
    return ReadScalars(found.event, scalars);
  };
  EXPECT_TRUE(read(Simple("loss", 0.5F)));
  EXPECT_TRUE(read(Field(1, "packed") + Field(8, "\x08\x01" + Field(5, Bytes(0.25F)))));
  EXPECT_TRUE(read(Field(1, "content") + Field(8, "\x08\x02" + Field(4, Bytes(0.125)))));
  EXPECT_TRUE(read(Field(1, "whole") + Field(8, "\x08\x09" + Field(10, "\x2a"))));
  EXPECT_TRUE(
      read(Field(1, "histogram") + Field(8, "\x08\x02" + Field(4, Bytes(1.0) + Bytes(2.0)))));
  EXPECT_TRUE(read(Field(1, "image") + Field(4, "bytes")));
  EXPECT_THAT(scalars, ElementsAre(Scalar{7, 1.5, "loss", 0.5}, Scalar{7, 1.5, "packed", 0.25},
                                   Scalar{7, 1.5, "content", 0.125}, Scalar{7, 1.5, "whole", 42}));
  EXPECT_FALSE(read("\x0a\x7f")) << "a field that is longer than its message";
}

class EventFolderTest : public ::testing::Test {
 protected:
  EventFolderTest() { TY_CHECK_OK(MakeDirectories(dir_.File("runs/one"))); }
  void Append(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_.File("runs/" + name), std::ios::app | std::ios::binary) << bytes;
  }
  std::vector<std::string> Tags(EventFolder& folder) {
    std::vector<Scalar> scalars;
    folder.Read(true, scalars);
    std::vector<std::string> tags;
    for (const Scalar& scalar : scalars) tags.push_back(absl::StrCat(scalar.tag, "@", scalar.step));
    return tags;
  }

  testing::TempDir dir_;
  const std::string file_ = "one/events.out.tfevents.1.host";
};

TEST_F(EventFolderTest, ATornRecordWaits) {
  EventFolder folder(dir_.File("runs"));
  const std::string record = Event(2, Simple("loss", 1));
  Append(file_, Event(1, Simple("loss", 1)) + record.substr(0, 20));
  EXPECT_THAT(Tags(folder), ElementsAre("loss@1"));
  EXPECT_THAT(Tags(folder), IsEmpty());
  Append(file_, record.substr(20));
  EXPECT_THAT(Tags(folder), ElementsAre("loss@2"));
  EXPECT_THAT(folder.TakeTroubles(), IsEmpty());
}

TEST_F(EventFolderTest, ADamagedRecordIsLeftOutAndADamagedLengthEndsTheFile) {
  EventFolder folder(dir_.File("runs"));
  std::string damaged = Event(1, Simple("loss", 1));
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  Append(file_, damaged + Event(2, Simple("loss", 1)));
  EXPECT_THAT(Tags(folder), ElementsAre("loss@2"));
  EXPECT_THAT(folder.TakeTroubles(), ElementsAre(HasSubstr("a damaged record")));
  Append(file_, std::string(12, '\x01') + Event(3, Simple("loss", 1)));
  EXPECT_THAT(Tags(folder), IsEmpty());
  Append("one/events.out.tfevents.2.host", std::string(12, '\0'));
  EXPECT_THAT(Tags(folder), IsEmpty());
  EXPECT_THAT(folder.TakeTroubles(), ElementsAre(HasSubstr("length is damaged")));
}

TEST_F(EventFolderTest, ALargeRecordIsPassedOver) {
  EventFolder folder(dir_.File("runs"));
  Append(file_, Framed(std::string(3 << 20, 'x')) + Event(2, Simple("loss", 1)));
  EXPECT_THAT(Tags(folder), ElementsAre("loss@2"));
}

TEST_F(EventFolderTest, FilesOfEarlierAttemptsAreFollowedFromTheirEnds) {
  Append(file_, Event(1, Simple("loss", 1)));
  Append("notes.txt", "no events");
  EventFolder folder(dir_.File("runs"));
  Append(file_, Event(2, Simple("loss", 1)));
  EXPECT_THAT(Tags(folder), ElementsAre("loss@2"));
  TY_CHECK_OK(MakeDirectories(dir_.File("runs/test")));
  Append("test/events.out.tfevents.9.host", Event(3, Simple("loss", 1)));
  EXPECT_THAT(Tags(folder), ElementsAre("test/loss@3"));
}

TEST_F(EventFolderTest, ScalarsBecomePointsOfTheRank) {
  MetricsTaker taker(0, dir_.File("metrics.jsonl"));
  TY_CHECK_OK(taker.Open(dir_.File("points")));
  taker.FollowEvents(dir_.File("runs"));
  Append(file_, Event(5, Simple("loss", 0.5F)) + Event(6, Simple("a\nb", 1)));
  EXPECT_THAT(taker.Take(run_dir::TailEnd::kFinished, 0), ElementsAre(HasSubstr("control")));
  EXPECT_EQ(taker.intake().step(), 6);
  const auto point = run_dir::DecodeMetricLine(ReadFile(dir_.File("points")).value(), "points");
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(*point, (run_dir::MetricPoint{5, "loss", 0.5, 1'500'000}));
}

TEST(MetricsTaker, AnEndIsReachedThoughALeftProcessWritesOn) {
  const testing::TempDir dir;
  const std::string path = dir.File("metrics.jsonl");
  const std::string points = dir.File("points");
  MetricsTaker taker(0, path);
  ASSERT_TRUE(taker.Open(points).ok());
  constexpr int kLines = 5000;
  std::string lines;
  for (int i = 0; i < kLines; ++i) lines += "{\"step\": 1, \"metrics\": {\"loss\": 0.5}}\n";
  std::ofstream(path) << lines;
  ASSERT_TRUE(taker.Take(run_dir::TailEnd::kGrowing, 1).empty());
  std::atomic<bool> is_taken = false;
  std::atomic<int> blocks = 1;
  std::thread writer([&] {
    std::ofstream file(path, std::ios::app);
    // It ends some time all the same, so that a taker that follows it to its end fails this test.
    while (blocks < 300 && !is_taken) {
      file << lines << std::flush;
      ++blocks;
    }
  });
  while (blocks == 1) std::this_thread::yield();
  (void)taker.Take(run_dir::TailEnd::kFinished, 1);
  is_taken = true;
  writer.join();
  const std::string taken = ReadFile(points).value();
  EXPECT_GT(std::count(taken.begin(), taken.end(), '\n'), kLines);
  EXPECT_LT(std::count(taken.begin(), taken.end(), '\n'), blocks * kLines);
}

TEST(MetricsTaker, ALongFileIsTakenInSeveralLooksWithoutALoss) {
  const testing::TempDir dir;
  const std::string path = dir.File("metrics.jsonl");
  MetricsTaker taker(0, path);
  ASSERT_TRUE(taker.Open(dir.File("points")).ok());
  // One look takes 16 chunks, of which each ends with a line, and so is a little shorter.
  const int64_t bytes = 40 * MetricsTail::kChunkBytes;
  std::string lines;
  int64_t count = 0;
  while (static_cast<int64_t>(lines.size()) < bytes) {
    absl::StrAppend(&lines, R"({"step":)", ++count, R"(,"name":"loss","value":0.5})", "\n");
  }
  dir.Write("metrics.jsonl", lines);
  for (int look = 0; look < 5; ++look) {
    EXPECT_THAT(taker.Take(run_dir::TailEnd::kGrowing, 1), ::testing::IsEmpty());
  }
  EXPECT_EQ(taker.intake().step(), count);
  const std::string points = *ReadFile(dir.File("points"));
  EXPECT_EQ(std::count(points.begin(), points.end(), '\n'), count);
}

TEST(MetricsTaker, TheLastTakesAllThatIsThereOfAFileThatWasReplaced) {
  const testing::TempDir dir;
  const std::string path = dir.File("metrics.jsonl");
  MetricsTaker taker(0, path);
  ASSERT_TRUE(taker.Open(dir.File("points")).ok());
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += R"({"step": 1, "metrics": {"old": 1}})"
             "\n";
  std::ofstream(path) << lines;
  ASSERT_TRUE(taker.Take(run_dir::TailEnd::kGrowing, 1).empty());
  std::ofstream(path, std::ios::app) << R"({"step": 2, "metrics": {"rest": 1}})"
                                        "\n";
  ASSERT_EQ(rename(path.c_str(), dir.File("old").c_str()), 0);
  std::ofstream(path) << R"({"step": 3, "metrics": {"new": 1}})";
  (void)taker.Take(run_dir::TailEnd::kFinished, 1);
  EXPECT_EQ(taker.intake().last().count("rest"), 1u);
  EXPECT_EQ(taker.intake().last().count("new"), 1u);
}

}  // namespace
}  // namespace trainyard::program
