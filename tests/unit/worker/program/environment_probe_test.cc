// Tests what is noted of the environment of a program.
#include "worker/program/environment_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::program {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EnvironmentProbe, TakesVersionAndPackagesFromTheAnswer) {
  FoundEnvironment found;
  TakeAnswer("/usr/bin/python3", "3.11.2\na==1\nb==2.0\n", found);
  EXPECT_EQ(found.interpreter, "/usr/bin/python3 (Python 3.11.2)");
  EXPECT_EQ(found.packages, "a==1\nb==2.0");
  FoundEnvironment none;
  TakeAnswer("/usr/bin/python3", "Traceback (most recent call last)", none);
  EXPECT_EQ(none.interpreter, "");
  FoundEnvironment long_one;
  std::string many = "3.11.2\n";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&many, "package-", i, "==1.0.0\n");
  TakeAnswer("python3", many, long_one);
  EXPECT_LE(long_one.packages.size(), kPackagesBytesMax);
  EXPECT_THAT(long_one.packages, ::testing::EndsWith("==1.0.0")) << "lines stay whole";
}

TEST(EnvironmentProbe, WritesJsonWhateverTheBytesAre) {
  EXPECT_EQ(EnvironmentJson({}), "{}\n");
  FoundEnvironment found;
  found.interpreter = "p\xff";
  found.packages = "a==1\nb==2";
  EXPECT_EQ(EnvironmentJson(found),
            "{\"interpreter\":\"p\xef\xbf\xbd\",\"packages\":\"a==1\\nb==2\"}\n");
  EXPECT_EQ(SystemName("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(SystemName("ID=x\n"), "");
}

class Running : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawnattr_t group;
    posix_spawnattr_init(&group);
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    const int failed = posix_spawn(&pid_, argv[0], nullptr, &group, argv.data(), environ);
    posix_spawnattr_destroy(&group);
    ASSERT_EQ(failed, 0);
  }
  void TearDown() override {
    (void)kill(-pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
  }

  pid_t pid_ = 0;
  testing::TempDir dir_;
  const std::string path_ = dir_.File("environment.json");
};

TEST_F(Running, PythonBelowAShellIsFoundAndAsked) {
  Start({"/bin/sh", "-c", "/usr/bin/python3 -c 'import time; time.sleep(100)'; true"});
  EnvironmentProbe probe(path_, *Clock::Real());
  EXPECT_TRUE(testing::WaitUntil(
      [&] {
        probe.Look(pid_);
        return FileExists(path_);
      },
      absl::Seconds(60)));
  EXPECT_THAT(*ReadFile(path_), HasSubstr("/usr/bin/python3 (Python 3."));
}

TEST_F(Running, PythonThatIsStartedLateHasAsMuchTimeToAnswer) {
  testing::ManualClock clock;
  Start({"/usr/bin/python3", "-c", "import time; time.sleep(100)"});
  EnvironmentProbe probe(path_, clock);
  clock.Advance(absl::Seconds(40));
  EXPECT_TRUE(testing::WaitUntil(
      [&] {
        probe.Look(pid_);
        return FileExists(path_);
      },
      absl::Minutes(5)))
      << "the clock of the probe stands still, so only the machine can be too slow";
  EXPECT_THAT(*ReadFile(path_), HasSubstr("/usr/bin/python3 (Python 3."));
}

TEST_F(Running, AProgramThatIsNoPythonIsNamed) {
  Start({"/bin/sleep", "100"});
  EnvironmentProbe probe(path_, *Clock::Real());
  probe.Look(pid_);
  EXPECT_FALSE(FileExists(path_)) << "it may still start Python";
  probe.Finish();
  EXPECT_THAT(*ReadFile(path_), HasSubstr("sleep\""));
  EXPECT_THAT(*ReadFile(path_), Not(HasSubstr("packages")));
}

}  // namespace
}  // namespace trainyard::program
