// Tests that the daemons take their flags from files, and what they say of mistakes in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/flags.h"
#include "tests/testing/temp_dir.h"
#include "worker/agent/worker_flags.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FlagFileTest : public ::testing::Test {
 protected:
  ParsedFlags Server(const std::string& file, std::vector<std::string> more = {}) {
    const std::string path = dir_.Write("server.yaml", file);
    std::vector<std::string> words = {"trainyard-server", "--config", path};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    ::testing::internal::CaptureStderr();
    ParsedFlags flags = ParseFlags(static_cast<int>(argv.size()), argv.data(), "/default");
    said_ = ::testing::internal::GetCapturedStderr();
    return flags;
  }

  // Returns what the server says of a file that it must refuse.
  std::string Refusal(const std::string& file) {
    EXPECT_EQ(Server(file).exit_code, 2) << file;
    return said_;
  }

  testing::TempDir dir_;
  std::string said_;
};

TEST_F(FlagFileTest, TheServerTakesItsFlagsFromAFile) {
  const ParsedFlags flags = Server(
      "# of the lab\n"
      "state_dir: /srv/state\n"
      "shared: true\n"
      "listen: [unix:/run/a.sock, tls:0.0.0.0:7070]\n"
      "admin-group: admins\n"
      "keep_jobs: 90d\n"
      "log_format: json\n");
  ASSERT_FALSE(flags.exit_code.has_value()) << said_;
  EXPECT_EQ(flags.options.state_dir, "/srv/state");
  EXPECT_TRUE(flags.options.shared);
  EXPECT_THAT(flags.options.listen, ElementsAre("unix:/run/a.sock", "tls:0.0.0.0:7070"));
  EXPECT_EQ(flags.options.admin_group, "admins") << "hyphens do, as on the command line";
  EXPECT_EQ(flags.options.log_format, LogFormat::kJson);
}

TEST_F(FlagFileTest, TheCommandLineWins) {
  const ParsedFlags flags =
      Server("state_dir: /file\nlisten: unix:/file.sock\n", {"--state_dir", "/line"});
  EXPECT_EQ(flags.options.state_dir, "/line");
  EXPECT_THAT(flags.options.listen, ElementsAre("unix:/file.sock"));
}

TEST_F(FlagFileTest, AnEmptyFileAndASwitchThatIsOffChangeNothing) {
  EXPECT_FALSE(Server("# nothing yet\n").exit_code.has_value()) << said_;
  const ParsedFlags flags = Server("shared: false\nsendmail: ''\n");
  EXPECT_FALSE(flags.exit_code.has_value()) << said_;
  EXPECT_FALSE(flags.options.shared);
  EXPECT_EQ(flags.options.sendmail, "");
}

TEST_F(FlagFileTest, MistakesAreToldWithTheirPlace) {
  EXPECT_THAT(Refusal("shared: true\nlisen: unix:/a\n"),
              HasSubstr("server.yaml:2:1: there is no flag 'lisen'; did you mean 'listen'?"));
  EXPECT_THAT(Refusal("config: /etc/other.yaml\n"), HasSubstr("there is no flag 'config'"));
  EXPECT_THAT(Refusal("shared: perhaps\n"),
              HasSubstr("server.yaml:1:9: 'shared' is a switch; expected true or false"));
  EXPECT_THAT(Refusal("state_dir:\n"), HasSubstr("'state_dir' has no value; an empty one is ''"));
  EXPECT_THAT(Refusal("state_dir: [/a, /b]\n"), HasSubstr("'state_dir' takes a single value"));
  EXPECT_THAT(Refusal("listen: {a: b}\n"), HasSubstr("'listen' takes a single value"));
  EXPECT_THAT(Refusal("- listen\n"), HasSubstr("expected names of flags with their values"));
  EXPECT_THAT(Refusal("shared: true\nshared: true\n"),
              HasSubstr("the key 'shared' is here a second time"));
  EXPECT_THAT(Refusal("log_format: loud\n"), HasSubstr("--log_format"));
}

TEST_F(FlagFileTest, AFileThatIsNotThereIsAMistake) {
  std::vector<std::string> words = {"trainyard-server", "--config", dir_.File("none.yaml")};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ParseFlags(3, argv.data(), "/default").exit_code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("none.yaml"));
}

TEST_F(FlagFileTest, TheWorkerTakesItsFlagsFromAFile) {
  std::vector<std::string> words = {
      "trainyard-worker", "--config",
      dir_.Write("worker.yaml",
                 "run_as: owner\nlabel: [zone=a, disk=fast]\ncpu_devices: 1x2,2x1\n"
                 "reserve_memory: 4GiB\n")};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  agent::WorkerFlags flags;
  ASSERT_FALSE(agent::ReadWorkerFlags(3, argv.data(), flags).has_value());
  EXPECT_EQ(flags.run_as, agent::RunAs::kOwner);
  EXPECT_THAT(flags.labels, ElementsAre("zone=a", "disk=fast"));
  EXPECT_EQ(flags.cpu_devices, "1x2,2x1");
  EXPECT_EQ(flags.reserved.memory_bytes, int64_t{4} << 30);
}

}  // namespace
}  // namespace trainyard
