// Tests which files of a folder travel, and when its archive is made anew.
#include "client/code/archive_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/code/ignore_rules.h"
#include "client/code/text_diff.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::code {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CodeFolder : public ::testing::Test {
 protected:
  CodeFolder() {
    // Long after all files were written, so that a cache may rely on their times.
    clock_.Advance(absl::Hours(24 * 365 * 100));
    std::filesystem::create_directories(Folder());
  }

  std::string Folder() const { return dir_.File("project"); }
  void Write(const std::string& path, const std::string& content) const {
    const std::filesystem::path full = JoinPath(Folder(), path);
    std::filesystem::create_directories(full.parent_path());
    ASSERT_TRUE(ReplaceFile(full.string(), content).ok());
  }
  void Git(const std::string& words) const {
    const std::string command =
        absl::StrCat("cd ", Folder(),
                     " && git -c user.name=a -c user.email=a@b -c init.defaultBranch=main ", words);
    const testing::TempDir scratch;
    testing::Process::Options options;
    options.args = {"/bin/sh", "-c", command};
    const auto result = testing::RunProcess(options, scratch.path(), absl::Minutes(1));
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->exit_code, 0) << command << "\n" << result->err;
  }
  // Returns the files of the folder's archive.
  std::vector<std::string> Files(const std::string& folder = "") {
    made_ = *cache_.Make(folder.empty() ? Folder() : folder);
    const UniqueFd fd = *OpenFile(made_.path, O_RDONLY);
    std::vector<std::string> files;
    const auto visit = [&files](const Entry& entry, Content&) {
      if (entry.kind != Entry::Kind::kFolder) files.push_back(entry.path);
      return absl::OkStatus();
    };
    EXPECT_TRUE(ReadArchive(fd.get(), visit).ok());
    return files;
  }

  testing::TempDir dir_;
  testing::ManualClock clock_;
  ArchiveCache cache_{dir_.File("cache"), clock_};
  MadeArchive made_;
};

TEST_F(CodeFolder, PatternsLeaveFilesOutWithoutARepository) {
  Write("train.py", "x");
  Write("data/big.bin", "x");
  Write("src/a.py", "x");
  Write("src/a.log", "x");
  Write("src/sub/b.log", "x");
  Write("src/sub/keep.log", "x");
  Write("made/by/hand.py", "x");
  Write(".gitignore", "*.log\n/made/\n");
  Write(".trainyardignore", "/data/\n!/made/\n");
  Write("src/sub/.trainyardignore", "!keep.log\n");
  EXPECT_THAT(Files(), ElementsAre(".gitignore", ".trainyardignore", "made/by/hand.py", "src/a.py",
                                   "src/sub/.trainyardignore", "src/sub/keep.log", "train.py"));
  EXPECT_EQ(made_.origin.commit(), "");
}

TEST_F(CodeFolder, WhatGitTracksTravelsUnlessTrainyardignoreSaysNo) {
  Write("kept.log", "x");
  Write("secret.env", "x");
  Write("train.py", "one\n");
  Git("init");
  Git("add -A");
  Git("commit -m first");
  Git("remote add origin https://anna:password@git.example/project.git");
  Write(".gitignore", "*.log\nout/\n");
  Write(".trainyardignore", "*.env\n");
  Write("other.log", "x");
  Write("out/result", "x");
  Write("train.py", "two\n");
  Write("secret.env", "changed");
  EXPECT_THAT(Files(), ElementsAre(".gitignore", ".trainyardignore", "kept.log", "train.py"));
  EXPECT_EQ(made_.origin.commit().size(), 40U);
  EXPECT_EQ(made_.origin.branch(), "main");
  EXPECT_EQ(made_.origin.remote(), "https://git.example/project.git");
  EXPECT_TRUE(made_.origin.is_dirty());
  EXPECT_THAT(made_.diff, AllOf(HasSubstr("-one\n+two\n"), Not(HasSubstr("secret"))));
  // A folder below is a part of the same repository, and its patterns hold there too.
  Write("sub/a.log", "x");
  Write("sub/b.py", "x");
  EXPECT_THAT(Files(JoinPath(Folder(), "sub")), ElementsAre("b.py"));
  EXPECT_EQ(made_.diff, "");
}

TEST_F(CodeFolder, ACommittedFolderIsClean) {
  Write("train.py", "one\n");
  Git("init");
  Git("add -A");
  Git("commit -m first");
  (void)Files();
  EXPECT_FALSE(made_.origin.is_dirty());
  Write("new.py", "x");
  (void)Files();
  EXPECT_TRUE(made_.origin.is_dirty()) << "the commit lacks a file";
  EXPECT_EQ(made_.diff, "");
}

TEST_F(CodeFolder, AFolderThatItsRepositoryIgnoresTravelsAllTheSame) {
  Write(".gitignore", "scratch/\n");
  Git("init");
  Write("scratch/try.py", "x");
  EXPECT_THAT(Files(JoinPath(Folder(), "scratch")), ElementsAre("try.py"));
}

TEST_F(CodeFolder, LinksThatStayInsideTravelAndOthersAreNamed) {
  Write("a/train.py", "x");
  ASSERT_EQ(symlink("a/train.py", JoinPath(Folder(), "inside").c_str()), 0);
  ASSERT_EQ(symlink("/etc", JoinPath(Folder(), "outside").c_str()), 0);
  ASSERT_EQ(mkfifo(JoinPath(Folder(), "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Files(), ElementsAre("a/train.py", "inside"));
  EXPECT_THAT(made_.left_out, ElementsAre(HasSubstr("'outside'"), HasSubstr("'pipe'")));
}

TEST_F(CodeFolder, AnUnchangedFolderIsNotReadAgain) {
  Write("train.py", "one");
  (void)Files();
  const std::string first = made_.digest;
  EXPECT_FALSE(made_.is_from_cache);
  (void)Files();
  EXPECT_TRUE(made_.is_from_cache);
  Write("train.py", "two");
  (void)Files();
  EXPECT_FALSE(made_.is_from_cache);
  EXPECT_NE(made_.digest, first);
  Write("train.py", "one");
  (void)Files();
  EXPECT_EQ(made_.digest, first) << "the archive is known by its content";
  Write(".trainyardignore", "*.md\n");
  EXPECT_THAT(Files(), ElementsAre(".trainyardignore", "train.py"));
  Write("notes.md", "x");
  EXPECT_THAT(Files(), ElementsAre(".trainyardignore", "train.py"));
  Write(".trainyardignore", "*.txt\n");
  EXPECT_THAT(Files(), ElementsAre(".trainyardignore", "notes.md", "train.py"));
}

TEST_F(CodeFolder, TheMessageNamesWhatIsLargest) {
  Write("train.py", "x");
  Write("data/huge.bin", std::string(5000, 'x'));
  const auto made = cache_.Make(Folder(), {.content_bytes = 1000, .entries = 100});
  EXPECT_EQ(ErrorReason(made.status()), error::kCodeTooLarge);
  EXPECT_THAT(std::string(made.status().message()),
              AllOf(HasSubstr("data/huge.bin"), HasSubstr(".trainyardignore")));
  for (int i = 0; i < 9; ++i) Write(absl::StrCat("many/", i), "");
  EXPECT_THAT(
      std::string(cache_.Make(Folder(), {.content_bytes = 10000, .entries = 5}).status().message()),
      HasSubstr("9 files  many"));
  EXPECT_TRUE(absl::IsNotFound(cache_.Make(dir_.File("none")).status()));
}

TEST(IgnoreRules, PatternsOfAFolderBelowAreBoundToIt) {
  EXPECT_EQ(RulesAtTop("", "*.log\n/data\n# no\n\n!keep\na/b\n"),
            "/**/*.log\n/data\n!/**/keep\n/a/b\n");
  EXPECT_EQ(RulesAtTop("", "!/out/\n!a/*.b\n"), "!/ou[t]/\n!/a/*.b\n");
  EXPECT_EQ(RulesAtTop("s[1]/t", "*.log\nout/\n/top\r\n"),
            "/s\\[1\\]/t/**/*.log\n/s\\[1\\]/t/**/out/\n/s\\[1\\]/t/top\n");
}

TEST(WithoutPassword, TakesOutWhatStandsBeforeTheHost) {
  EXPECT_EQ(WithoutPassword("https://a:b@host/p@q"), "https://host/p@q");
  EXPECT_EQ(WithoutPassword("git@host:a/b"), "git@host:a/b");
  EXPECT_EQ(WithoutPassword("ssh://git@host/a"), "ssh://host/a");
}

TEST(TextDiff, ShowsLinesThatDiffer) {
  EXPECT_THAT(TextDiff("a.py", "one\ntwo\n", "one\nthree\n"), HasSubstr("-two\n+three\n"));
  EXPECT_EQ(TextDiff("a.py", "one\n", "one\n"), "");
}

}  // namespace
}  // namespace trainyard::code
