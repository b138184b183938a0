// Tests that checkpoints are written completely or not at all, and that any damage is found.
#include "worker/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<CheckpointFile> SmallFiles(int64_t step) {
  return {{"state.json", absl::StrCat("{\"step\": ", step, "}")},
          {"model.safetensors", absl::StrCat("weights of step ", step)},
          {"optimizer.safetensors", absl::StrCat("momenta of step ", step)}};
}

class CheckpointTest : public ::testing::Test {
 protected:
  void Write(int64_t step) {
    const absl::Status status = WriteCheckpoint(dir_, step, SmallFiles(step));
    ASSERT_TRUE(status.ok()) << status;
  }
  std::string Path(int64_t step, absl::string_view file) const {
    return JoinPath(CheckpointPath(dir_, step), file);
  }
  void Overwrite(const std::string& path, absl::string_view content) {
    ASSERT_TRUE(ReplaceFile(path, content).ok());
  }
  // Returns the message of the refusal, which must be DATA_LOSS, or an empty text if the checkpoint
  // is valid.
  std::string Damage(int64_t step) const {
    const absl::Status status = VerifyCheckpoint(CheckpointPath(dir_, step)).status();
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
    return std::string(status.message());
  }

  const testing::TempDir temp_;
  const std::string dir_ = temp_.File("attempt/checkpoints");
};

TEST_F(CheckpointTest, HoldsWhatWasWritten) {
  Write(600);
  const auto manifest = VerifyCheckpoint(CheckpointPath(dir_, 600));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 600);
  ASSERT_EQ(manifest->files.size(), 3U);
  EXPECT_EQ(manifest->files[0].name, "model.safetensors");
  EXPECT_EQ(manifest->files[0].size, 19);
  EXPECT_EQ(manifest->files[0].hash, ContentHash("weights of step 600"));
  EXPECT_EQ(*ReadFile(Path(600, "model.safetensors")), "weights of step 600");
  EXPECT_THAT(*ListDirectory(dir_), ElementsAre("step-600"));
}

TEST_F(CheckpointTest, ManifestIsSpelledAsDocumented) {
  ASSERT_TRUE(WriteCheckpoint(dir_, 7, {{"b", "two"}, {"a", ""}}).ok());
  EXPECT_EQ(*ReadFile(Path(7, "MANIFEST")),
            "{\"format\": 1, \"step\": 7, \"files\": [\n"
            "  {\"name\": \"a\", \"size\": 0, "
            "\"hash\": \"xxh3-128:99aa06d3014798d86001c324468d497f\"},\n"
            "  {\"name\": \"b\", \"size\": 3, "
            "\"hash\": \"xxh3-128:35d5c8cc887e4da96c0560bdcb29998b\"}]}\n");
}

TEST_F(CheckpointTest, HashesAsXxh3DoesForTheEmptyString) {
  // The test vector of xxHash for a length and a seed of 0.
  EXPECT_EQ(ContentHash(""), "xxh3-128:99aa06d3014798d86001c324468d497f");
}

TEST_F(CheckpointTest, WritingACompleteStepAgainChangesNothing) {
  Write(5);
  const absl::Status again = WriteCheckpoint(dir_, 5, {{"model.safetensors", "other"}});
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_EQ(*ReadFile(Path(5, "model.safetensors")), "weights of step 5");
}

TEST_F(CheckpointTest, WritingADamagedStepAgainReplacesIt) {
  Write(5);
  Overwrite(Path(5, "model.safetensors"), "weights of step 6");
  ASSERT_NE(Damage(5), "");
  Write(5);
  EXPECT_EQ(Damage(5), "");
  EXPECT_THAT(*ListDirectory(dir_), ElementsAre("step-5"));
}

TEST_F(CheckpointTest, EveryFlippedBitIsFound) {
  Write(600);
  const std::vector<std::string> names = *ListDirectory(CheckpointPath(dir_, 600));
  for (const std::string& name : names) {
    const std::string path = Path(600, name);
    const std::string content = *ReadFile(path);
    for (size_t bit = 0; bit < 8 * content.size(); ++bit) {
      std::string flipped = content;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      Overwrite(path, flipped);
      ASSERT_NE(Damage(600), "") << name << " bit " << bit;
    }
    Overwrite(path, content);
  }
  EXPECT_EQ(Damage(600), "");
}

TEST_F(CheckpointTest, EveryTruncationIsFound) {
  Write(600);
  const std::vector<std::string> names = *ListDirectory(CheckpointPath(dir_, 600));
  for (const std::string& name : names) {
    const std::string path = Path(600, name);
    const std::string content = *ReadFile(path);
    for (size_t size = 0; size < content.size(); ++size) {
      Overwrite(path, absl::string_view(content).substr(0, size));
      ASSERT_NE(Damage(600), "") << name << " cut to " << size;
    }
    Overwrite(path, content + "x");
    EXPECT_NE(Damage(600), "") << name << " with a byte more";
    Overwrite(path, content);
  }
}

TEST_F(CheckpointTest, SwappedFilesAreFound) {
  Write(600);
  const std::string other = temp_.File("other");
  ASSERT_EQ(rename(Path(600, "model.safetensors").c_str(), other.c_str()), 0);
  ASSERT_EQ(
      rename(Path(600, "optimizer.safetensors").c_str(), Path(600, "model.safetensors").c_str()),
      0);
  ASSERT_EQ(rename(other.c_str(), Path(600, "optimizer.safetensors").c_str()), 0);
  EXPECT_THAT(Damage(600), HasSubstr("model.safetensors' is corrupt: its hash is xxh3-128:"));
}

TEST_F(CheckpointTest, SwappedFoldersAreFound) {
  Write(600);
  ASSERT_EQ(rename(CheckpointPath(dir_, 600).c_str(), CheckpointPath(dir_, 700).c_str()), 0);
  EXPECT_THAT(Damage(700), HasSubstr("its step is 600; the folder's name says 700"));
  EXPECT_THAT(ListCheckpoints(dir_), IsEmpty());
}

TEST_F(CheckpointTest, ACopyUnderAnotherNameVerifies) {
  Write(600);
  const std::string copy = temp_.File("downloaded");
  ASSERT_EQ(rename(CheckpointPath(dir_, 600).c_str(), copy.c_str()), 0);
  const auto manifest = VerifyCheckpoint(copy);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 600);
}

TEST_F(CheckpointTest, MissingAndExtraFilesAreFound) {
  Write(600);
  Overwrite(Path(600, "notes.txt"), "extra");
  EXPECT_THAT(Damage(600), HasSubstr("notes.txt' is corrupt: MANIFEST does not list it"));
  ASSERT_EQ(remove(Path(600, "notes.txt").c_str()), 0);
  ASSERT_EQ(remove(Path(600, "state.json").c_str()), 0);
  EXPECT_THAT(Damage(600), HasSubstr("state.json' is corrupt: it is missing"));
  ASSERT_EQ(remove(Path(600, "MANIFEST").c_str()), 0);
  EXPECT_THAT(Damage(600), HasSubstr("MANIFEST' is corrupt: it is missing"));
}

TEST_F(CheckpointTest, AFolderThatIsNotThereIsNotFound) {
  EXPECT_EQ(VerifyCheckpoint(CheckpointPath(dir_, 1)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, AManifestThatReachesOutOfTheFolderIsRefused) {
  for (const char* name : {"../model", "/etc/passwd", ".hidden", "", "MANIFEST", "a\\u0000b"}) {
    const std::string path = temp_.Write(
        "MANIFEST", absl::StrCat("{\"format\": 1, \"step\": 7, \"files\": [\n  {\"name\": \"", name,
                                 "\", \"size\": 1, \"hash\": \"xxh3-128:00\"}]}\n"));
    const absl::Status status = ParseManifest(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no plain file name"));
  }
}

TEST_F(CheckpointTest, ManifestsOfAnotherFormOrFormatAreRefused) {
  const auto refusal = [this](absl::string_view text) {
    const absl::Status status = ParseManifest(temp_.Write("MANIFEST", text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(""), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("no number 'format'"));
  EXPECT_THAT(refusal(R"({"format": 2})"), HasSubstr("its format is 2; expected 1"));
  EXPECT_THAT(refusal(R"({"format": 1, "step": -1})"), HasSubstr("no number 'step'"));
  EXPECT_THAT(refusal(R"({"format": 1, "step": 1, "files": {}})"), HasSubstr("no list 'files'"));
  EXPECT_THAT(refusal(R"({"format": 1, "step": 1, "files": [1]})"), HasSubstr("files[0]"));
  EXPECT_THAT(refusal(R"({"format": 1, "step": 1, "files": [], "more": 1})"),
              HasSubstr("not spelled as it was written"));
  constexpr char kEntry[] = R"({"name": "a", "size": 0, "hash": "h"})";
  EXPECT_THAT(
      refusal(absl::StrCat(R"({"format": 1, "step": 1, "files": [)", kEntry, ",", kEntry, "]}")),
      HasSubstr("listed twice"));
  EXPECT_THAT(refusal(std::string(2 << 20, ' ')), HasSubstr("larger than the limit"));
}

TEST_F(CheckpointTest, ListsCompleteFoldersInOrderOfTheirSteps) {
  EXPECT_THAT(ListCheckpoints(dir_), IsEmpty());
  Write(1000);
  Write(20);
  Write(3);
  ASSERT_TRUE(MakeDirectories(JoinPath(dir_, "step-30")).ok());
  ASSERT_TRUE(MakeDirectories(JoinPath(dir_, "step-0040")).ok());
  ASSERT_TRUE(MakeDirectories(JoinPath(dir_, "steps")).ok());
  EXPECT_THAT(ListCheckpoints(dir_), ElementsAre(3, 20, 1000));
}

TEST_F(CheckpointTest, WhatACrashedWriterLeftIsPassedOverAndSweptByTheNext) {
  Write(10);
  const std::string left = JoinPath(dir_, "step-20.tmp");
  ASSERT_TRUE(MakeDirectories(left).ok());
  Overwrite(JoinPath(left, "model.safetensors"), "half of the wei");
  std::vector<std::string> damaged;
  EXPECT_THAT(ListCheckpoints(dir_), ElementsAre(10));
  EXPECT_EQ(FindLatestValid(dir_, damaged)->step, 10);
  EXPECT_THAT(damaged, IsEmpty());
  Write(30);
  EXPECT_THAT(*ListDirectory(dir_), ElementsAre("step-10", "step-30"));
}

TEST_F(CheckpointTest, FallsBackToTheNewestThatVerifies) {
  Write(10);
  Write(20);
  Write(30);
  Overwrite(Path(30, "model.safetensors"), "weights of step 31");
  ASSERT_EQ(remove(Path(20, "MANIFEST").c_str()), 0);
  std::vector<std::string> damaged;
  const auto latest = FindLatestValid(dir_, damaged);
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->step, 10);
  EXPECT_EQ(latest->path, CheckpointPath(dir_, 10));
  EXPECT_THAT(damaged,
              ElementsAre(HasSubstr("step-30/model.safetensors"), HasSubstr("step-20/MANIFEST")));
}

TEST_F(CheckpointTest, NothingValidIsNotFound) {
  std::vector<std::string> damaged;
  EXPECT_EQ(FindLatestValid(dir_, damaged).status().code(), absl::StatusCode::kNotFound);
  Write(10);
  ASSERT_EQ(remove(Path(10, "MANIFEST").c_str()), 0);
  EXPECT_EQ(FindLatestValid(dir_, damaged).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(damaged.size(), 1U);
}

TEST_F(CheckpointTest, AFullDiskLeavesThePreviousCheckpointsAndNoRest) {
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  if (mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  }
  const auto unmount = absl::MakeCleanup([this] { umount2(dir_.c_str(), MNT_DETACH); });
  Write(10);
  const absl::Status full = WriteCheckpoint(
      dir_, 20, {{"model.safetensors", std::string(1 << 20, 'w')}, {"state.json", "{}"}});
  EXPECT_EQ(ErrorReason(full), "DISK_FULL") << full;
  EXPECT_THAT(*ListDirectory(dir_), ElementsAre("step-10"));
  EXPECT_EQ(Damage(10), "");
  // The problem is gone as soon as the checkpoint fits.
  Write(20);
  EXPECT_THAT(ListCheckpoints(dir_), ElementsAre(10, 20));
}

}  // namespace
}  // namespace trainyard::checkpoint
