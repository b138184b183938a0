// Tests that a helper which does not end by itself keeps nothing waiting.
#include "worker/agent/tunnel_helper.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/numbers.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::agent {
namespace {

class TunnelHelperTest : public ::testing::Test {
 protected:
  // Starts a script in place of trainyard-enter.
  std::optional<TunnelHelper> Start(const std::string& script, const enter::Request& request) {
    const std::string path = folder_.Write("helper", "#!/bin/sh\n" + script + "\n");
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    auto helper = TunnelHelper::Start(path, request);
    EXPECT_TRUE(helper.ok()) << helper.status();
    if (!helper.ok()) return std::nullopt;
    return *std::move(helper);
  }

  // Waits until the script has stopped itself, having written its number.
  bool WaitForStop() {
    return testing::WaitUntil([&] {
      int64_t pid = 0;
      const auto text = ReadFile(folder_.File("pid"));
      if (!text.ok() || !absl::SimpleAtoi(*text, &pid)) return false;
      const auto process = ReadProcess(pid);
      return process.ok() && process->state == 'T';
    });
  }
  std::string Stop() const { return "echo $$ > " + folder_.File("pid") + "; kill -STOP $$; "; }

  testing::TempDir folder_;
};

TEST_F(TunnelHelperTest, AHelperForAPortIsKilledAtOnceThoughItsOwnerHasStoppedIt) {
  enter::Request request;
  request.rank = {1, 1, geteuid()};
  request.port = 80;
  auto helper = Start(Stop() + "sleep 1000", request);
  ASSERT_TRUE(helper.has_value());
  ASSERT_TRUE(WaitForStop());
  const absl::Duration begin = Clock::Real()->Uptime();
  helper.reset();
  EXPECT_LT(Clock::Real()->Uptime() - begin, TunnelHelper::kEndWait);
}

TEST_F(TunnelHelperTest, AHelperForACommandGoesOnAndEndsByItself) {
  enter::Request request;
  request.rank = {1, 1, geteuid()};
  request.words = {"true"};
  const std::string ended = folder_.File("ended");
  // The script ends when the daemon has closed the pipe to its standard input.
  auto helper = Start(Stop() + "cat; touch " + ended, request);
  ASSERT_TRUE(helper.has_value());
  ASSERT_TRUE(WaitForStop());
  helper.reset();
  EXPECT_TRUE(FileExists(ended)) << "it was not killed";
}

TEST_F(TunnelHelperTest, TheOwnerOfACommandMayOpenItsPipesByName) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, who acts for others";
  enter::Request request;
  request.rank = {1, 1, 12'345};
  request.owner = {12'345, 12'346, {}};
  request.words = {"true"};
  const auto helper = Start("cat", request);
  ASSERT_TRUE(helper.has_value());
  for (const UniqueFd* pipe : {&helper->input, &helper->output, &helper->error_output}) {
    struct stat info {};
    ASSERT_EQ(fstat(pipe->get(), &info), 0);
    EXPECT_EQ(info.st_uid, 12'345u);
    EXPECT_EQ(info.st_gid, 12'346u);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
}

}  // namespace
}  // namespace trainyard::agent
