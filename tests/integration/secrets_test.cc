// Tests secrets from `trainyard secrets set` to the file that a program reads, and that they are
// nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kValue[] = "hf_aBcDeF-0123456789-only-for-the-program";

// Returns the files below a folder that hold the text.
std::vector<std::string> FilesWith(const std::string& folder, const std::string& text) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           folder, std::filesystem::directory_options::skip_permission_denied)) {
    if (!entry.is_regular_file() || entry.is_symlink()) continue;
    const auto content = ReadFile(entry.path().string());
    if (content.ok() && absl::StrContains(*content, text)) found.push_back(entry.path().string());
  }
  return found;
}

std::string SpecOf(const std::string& script) {
  return absl::StrCat(
      "name: own\ndevices: 1\nprogram:\n  secrets: [hf_token]\n  env: {PYTHONPATH: ",
      SourcePath("client/python"), "}\n  script: |\n    #!/usr/bin/python3\n", script);
}

TEST(Secrets, AProgramFindsThemInAFileAndNobodyElseDoes) {
  Yard yard;
  yard.Start();
  const ProcessResult refused =
      yard.Cli({"run", "--set", "program.secrets=[\"hf_token\"]", "--", "true"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("has no secret 'hf_token'"));

  const std::string file = yard.File("token");
  ASSERT_TRUE(WriteFileAtomically(file, absl::StrCat(kValue, "\n"), 0600).ok());
  ASSERT_EQ(yard.Cli({"secrets", "set", "hf_token", "--file", file}).exit_code, 0);
  ASSERT_TRUE(RemoveTree(file).ok());
  const ProcessResult list = yard.Cli({"secrets", "ls"});
  EXPECT_THAT(list.out, HasSubstr("hf_token"));
  EXPECT_THAT(list.out, Not(HasSubstr(kValue)));

  // The length and the hash of a value are not the value.
  const std::string job = yard.Submit(SpecOf(R"(
    import os, stat, trainyard
    folder = os.environ["TRAINYARD_SECRETS"]
    info = os.stat(os.path.join(folder, "hf_token"))
    assert stat.S_IMODE(info.st_mode) == 0o600 and info.st_uid == os.getuid(), info
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert os.listdir(folder) == ["hf_token"]
    print("length", len(trainyard.secret("hf_token")), "in", folder)
    try:
        trainyard.secret("other")
    except KeyError as error:
        print(error)
)"));
  const v1::Job ended = yard.WaitForEnd(job);
  const std::string log = yard.Cli({"logs", "1"}).out;
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << log;
  EXPECT_THAT(log, HasSubstr(absl::StrCat("length ", sizeof kValue - 1, " in ")));
  EXPECT_THAT(log, HasSubstr("the job has no secret 'other'"));

  // The folder is gone with the attempt, and no file of server and worker has the value.
  const size_t at = log.find(" in ") + 4;
  const std::string folder = log.substr(at, log.find('\n', at) - at);
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(folder); })) << folder;
  EXPECT_THAT(FilesWith(std::filesystem::path(file).parent_path().string(), kValue),
              ::testing::IsEmpty());
  EXPECT_THAT(yard.Cli({"show", "1", "--spec"}).out, Not(HasSubstr(kValue)));
  EXPECT_THAT(yard.Cli({"audit"}).out, HasSubstr("SecretService/SetSecret"));
  ASSERT_EQ(yard.Cli({"secrets", "rm", "hf_token"}).exit_code, 0);
  EXPECT_THAT(yard.Cli({"clone", "1", "--yes"}).err, HasSubstr("has no secret 'hf_token'"));
}

TEST(Secrets, WhatACrashLeavesIsRemovedByTheNextWorker) {
  Yard yard;
  yard.Start();
  const std::string file = yard.File("token");
  ASSERT_TRUE(WriteFileAtomically(file, "v", 0600).ok());
  ASSERT_EQ(yard.Cli({"secrets", "set", "hf_token", "--file", file}).exit_code, 0);
  const std::string job = yard.Submit(SpecOf(R"(
    import os, signal
    print(os.environ["TRAINYARD_SECRETS"], flush=True)
    signal.pause()
)"));
  std::string folder;
  ASSERT_TRUE(WaitUntil([&] {
    const std::string log = yard.Cli({"logs", "1"}).out;
    folder = log.substr(0, log.find('\n'));
    return FileExists(folder + "/hf_token");
  }));
  yard.KillWorker();
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  for (const auto& pid : {record["pid"].get<int>(), record["ranks"][0]["pid"].get<int>()}) {
    kill(pid, SIGKILL);
  }
  EXPECT_TRUE(FileExists(folder + "/hf_token"));
  yard.StartWorker();
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(folder); })) << folder;
  (void)yard.Cli({"cancel", "1", "--yes"});
}

}  // namespace
}  // namespace trainyard::testing
