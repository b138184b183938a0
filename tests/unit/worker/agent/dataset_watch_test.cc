// Tests the watch of data sets with a script in the place of the trainer.
#include "worker/agent/dataset_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::agent {
namespace {

using ::testing::HasSubstr;

constexpr char kList[] = R"({"splits": [
  {"dataset": "images", "path": "pets", "split": "train", "samples": 12, "classes": 3,
   "shape": "3 x any x any", "digest": "xxh3-128:1", "corrupt": 0, "errors": []},
  {"dataset": "mnist", "path": "", "split": "test", "errors": ["cut off", "twice"]}]})";

TEST(Datasets, AreReadFromTheTrainersList) {
  const auto datasets = ParseDatasets(kList);
  ASSERT_TRUE(datasets.ok()) << datasets.status();
  const Datasets expected = {{"images", "pets", "train", 12, 3, "3 x any x any", "xxh3-128:1", ""},
                             {"mnist", "", "test", 0, 0, "", "", "cut off"}};
  EXPECT_EQ(*datasets, expected);
  for (const char* text : {"", "[]", "{}", "{\"splits\": 3}", "progress"}) {
    EXPECT_FALSE(ParseDatasets(text).ok()) << text;
  }
}

TEST(Datasets, TheSignatureOfAFolderChangesWithWhatLiesThere) {
  const testing::TempDir dir;
  EXPECT_EQ(FolderSignature(dir.File("nothing")), "");
  EXPECT_EQ(FolderSignature(""), "");
  const std::string empty = FolderSignature(dir.path());
  EXPECT_NE(empty, "");
  ASSERT_TRUE(MakeDirectories(dir.File("mnist")).ok());
  const std::string with_folder = FolderSignature(dir.path());
  EXPECT_NE(with_folder, empty);
  dir.Write("mnist/a", "1");
  const std::string with_file = FolderSignature(dir.path());
  EXPECT_NE(with_file, with_folder);
  dir.Write("mnist/a", "22");
  EXPECT_NE(FolderSignature(dir.path()), with_file);
}

class DatasetWatchTest : public ::testing::Test {
 protected:
  // Makes a script that counts how often it is called, and then does `body`.
  DatasetWatch::Options Options(const std::string& body) {
    const std::string path = state_.Write(
        "trainer", absl::StrCat("#!/bin/sh\necho \"$@\" >> ", state_.File("calls"), "\n", body));
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return {state_.path(), path, data_.path(), absl::Milliseconds(5)};
  }
  std::string Calls() const {
    const auto calls = ReadFile(state_.File("calls"), 1 << 20);
    return calls.ok() ? *calls : "";
  }

  const testing::TempDir state_;
  const testing::TempDir data_;
  std::atomic<int> changes_ = 0;
};

TEST_F(DatasetWatchTest, LooksOnceAndAgainWhenTheFolderHasChanged) {
  state_.Write("list", kList);
  DatasetWatch watch(Options(absl::StrCat("cat ", state_.File("list"))), [this] { ++changes_; });
  EXPECT_EQ(watch.Latest(), nullptr);
  watch.Start();
  ASSERT_TRUE(testing::WaitUntil([&] { return changes_ >= 1; }));
  const auto first = watch.Latest();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->size(), 2u);
  const std::string call = absl::StrCat("--data ls --dataset_dir ", data_.path(), "\n");
  EXPECT_EQ(Calls(), call);
  state_.Write("list", R"({"splits": []})");
  data_.Write("new", "file");
  ASSERT_TRUE(testing::WaitUntil([&] { return watch.Latest()->empty(); }));
  EXPECT_THAT(Calls(), HasSubstr(call + call));
  EXPECT_EQ(first->size(), 2u);
}

TEST_F(DatasetWatchTest, AHostWithoutAFolderHasNoDataSets) {
  DatasetWatch::Options options = Options("exit 1");
  options.dataset_dir = "";
  DatasetWatch watch(options, [this] { ++changes_; });
  watch.Start();
  ASSERT_TRUE(testing::WaitUntil([&] { return changes_ == 1; }));
  ASSERT_NE(watch.Latest(), nullptr);
  EXPECT_TRUE(watch.Latest()->empty());
  EXPECT_EQ(Calls(), "");
}

TEST_F(DatasetWatchTest, ATrainerThatFailsLeavesThemUnknown) {
  DatasetWatch watch(Options("echo broken >&2; exit 3"), [this] { ++changes_; });
  watch.Start();
  ASSERT_TRUE(testing::WaitUntil([&] { return changes_ == 1; }));
  EXPECT_EQ(watch.Latest(), nullptr);
}

TEST_F(DatasetWatchTest, LooksWithTheRightsOfTheReaderAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(chmod(state_.path().c_str(), 0711), 0);
  data_.Write("secret", "of root");
  ASSERT_EQ(chmod(data_.File("secret").c_str(), 0600), 0);
  DatasetWatch::Options options =
      Options(absl::StrCat("cat ", data_.File("secret"), R"( >/dev/null 2>&1 && exit 3
echo "{\"splits\": [{\"dataset\": \"$(id -u) $(id -G)\"}]}")"));
  state_.Write("calls", "");
  ASSERT_EQ(chmod(state_.File("calls").c_str(), 0666), 0);
  options.reader.name = "somebody";
  options.reader.owner = {.is_self = false, .uid = 61'001, .gid = 61'002, .groups = {61'002}};
  DatasetWatch watch(options, [this] { ++changes_; });
  watch.Start();
  ASSERT_TRUE(testing::WaitUntil([&] { return changes_ == 1; }));
  ASSERT_NE(watch.Latest(), nullptr) << ReadFile(state_.File("datasets.log")).value_or("");
  ASSERT_EQ(watch.Latest()->size(), 1u);
  EXPECT_EQ(watch.Latest()->front().dataset, "61001 61002");
  struct stat info {};
  ASSERT_EQ(stat(state_.File("datasets.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u) << "the answer is in a file of the daemon";
}

TEST_F(DatasetWatchTest, AStopDoesNotWaitForATrainerThatLooks) {
  DatasetWatch watch(Options("exec sleep 1000"), [this] { ++changes_; });
  watch.Start();
  ASSERT_TRUE(testing::WaitUntil([&] { return !Calls().empty(); }));
  watch.Stop();
  EXPECT_EQ(watch.Latest(), nullptr);
}

}  // namespace
}  // namespace trainyard::agent
