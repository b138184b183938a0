// Tests which server a command talks to, and the verbs that name servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Contexts : public ::testing::Test {
 protected:
  std::string Show(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> args = {"contexts", "show"};
    args.insert(args.end(), flags.begin(), flags.end());
    const CommandResult result = runner_.Run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  void Add(const std::string& name, const std::string& address) {
    const CommandResult result = runner_.Run({"contexts", "add", name, address});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  std::string ConfigFile() { return runner_.home.File(".config/trainyard/config.yaml"); }

  FakeServer server_;
  CommandRunner runner_{""};
};

TEST_F(Contexts, AreAddedListedUsedAndRemoved) {
  EXPECT_THAT(runner_.Run({"contexts", "ls"}).err, HasSubstr("no contexts"));
  Add("lab", "ssh://anna@lab");
  const CommandResult added = runner_.Run({"contexts", "add", "here", server_.address(), "--use"});
  EXPECT_THAT(added.err, HasSubstr("commands now go to 'here', unix:"));
  EXPECT_EQ(runner_.Run({"contexts", "ls"}).out,
            "CURRENT  NAME  SERVER\n-        lab   ssh://anna@lab\n*        here  " +
                server_.address() + "\n");
  EXPECT_EQ(runner_.Run({"contexts", "ls", "-o", "name"}).out, "lab\nhere\n");
  EXPECT_THAT(runner_.Run({"contexts", "ls", "-o", "jsonl"}).out,
              HasSubstr(R"({"name":"lab","server":"ssh://anna@lab","current":false})"));
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"contexts", "use", "lab"}).exit_code, 0);
  EXPECT_THAT(Show(), HasSubstr("server   ssh://anna@lab\n"));
  EXPECT_THAT(runner_.Run({"contexts", "rm", "lab"}).err,
              HasSubstr("server of this machine again"));
  EXPECT_EQ(runner_.Run({"contexts", "ls", "-o", "name"}).out, "here\n");
  struct stat info {};
  ASSERT_EQ(stat(ConfigFile().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(Contexts, AreForgottenForAWhileByNone) {
  Add("lab", "ssh://lab");
  EXPECT_EQ(runner_.Run({"contexts", "use", "lab"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"contexts", "use", "--none"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"ls"}).exit_code, 9);
  EXPECT_EQ(runner_.Run({"contexts", "use"}).exit_code, 2);
}

TEST_F(Contexts, ANameIsNotGivenTwiceByMistake) {
  Add("lab", "ssh://lab");
  const CommandResult refused = runner_.Run({"contexts", "add", "lab", "ssh://other"});
  EXPECT_EQ(refused.exit_code, 6);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("already, for ssh://lab"), HasSubstr("--replace")));
  EXPECT_EQ(runner_.Run({"contexts", "use", "lab"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"contexts", "add", "lab", "ssh://other", "--replace"}).exit_code, 0);
  EXPECT_THAT(Show(), HasSubstr("server   ssh://other\n"));
}

TEST_F(Contexts, WrongNamesAndAddressesAreRefused) {
  EXPECT_EQ(runner_.Run({"contexts", "add", "a/b", "ssh://lab"}).exit_code, 2);
  const CommandResult bad = runner_.Run({"contexts", "add", "lab", "ssh://-x"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("begins with '-'"));
  EXPECT_EQ(runner_.Run({"contexts", "add", "lab", "lab"}).exit_code, 2);
  EXPECT_FALSE(FileExists(ConfigFile()));
}

TEST_F(Contexts, AnUnknownOneIsNotFoundAndTheNearestIsNamed) {
  Add("lab", "ssh://lab");
  for (const std::vector<std::string>& args : {std::vector<std::string>{"contexts", "use", "lob"},
                                               {"contexts", "rm", "lob"},
                                               {"ls", "--context", "lob"}}) {
    const CommandResult result = runner_.Run(args);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("did you mean 'lab'?"));
  }
}

TEST_F(Contexts, WhatTheUserSaysNowComesFirst) {
  Add("one", "ssh://one");
  Add("two", "ssh://two");
  Add("three", "ssh://three");
  EXPECT_EQ(runner_.Run({"contexts", "use", "one"}).exit_code, 0);
  EXPECT_THAT(Show(),
              HasSubstr("ssh://one\nbecause  you use the context 'one' of " + ConfigFile()));
  runner_.surroundings.context = "two";
  EXPECT_THAT(Show(), HasSubstr("ssh://two\nbecause  $TRAINYARD_CONTEXT names the context 'two'"));
  runner_.surroundings.server = "ssh://four";
  EXPECT_THAT(Show(), HasSubstr("ssh://four\nbecause  $TRAINYARD_SERVER names it"));
  EXPECT_THAT(Show({"--context", "three"}),
              HasSubstr("ssh://three\nbecause  --context names the context 'three'"));
  EXPECT_THAT(Show({"--server", "ssh://five"}),
              HasSubstr("ssh://five\nbecause  --server names it"));
  EXPECT_EQ(runner_.Run({"ls", "--server", "ssh://a", "--context", "one"}).exit_code, 2);
  EXPECT_EQ(Show({"-o", "jsonl"}),
            R"({"server":"ssh://four","context":"","reason":"$TRAINYARD_SERVER names it"})"
            "\n");
}

TEST_F(Contexts, WithoutAnyTheOwnServerComesBeforeThatOfTheMachine) {
  runner_.surroundings.system_server = server_.address();
  EXPECT_THAT(Show(), HasSubstr(server_.address() + "\nbecause  it is the server of this machine"));
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).exit_code, 0);
  // The socket of the user's own server leads to this one.
  const std::string folder = runner_.home.File(".local/state/trainyard/server");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  const std::string own = JoinPath(folder, "server.sock");
  ASSERT_EQ(symlink(server_.address().substr(5).c_str(), own.c_str()), 0);
  EXPECT_THAT(Show(),
              HasSubstr("unix:" + own + "\nbecause  it is the server of your own `trainyard up`"));
}

TEST_F(Contexts, WithoutAnyServerItSaysWhatWasTried) {
  const CommandResult result = runner_.Run({"ls"});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("tried the server of your own `trainyard up`, unix:" +
                      runner_.home.File(".local/state/trainyard/server/server.sock") +
                      ": No such file or directory"),
            HasSubstr("tried the server of this machine, " + runner_.surroundings.system_server),
            HasSubstr("start one with `trainyard up`"), HasSubstr("ssh://HOST")));
}

TEST_F(Contexts, ASocketThatIsClosedToTheUserIsNotAllowed) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "root may use every socket; the test of ssh does this as another user";
  }
  ASSERT_EQ(chmod(server_.address().substr(5).c_str(), 0), 0);
  const CommandResult result = runner_.Run({"ls", "--server", server_.address()});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("you are not allowed to use the server"));
}

}  // namespace
}  // namespace trainyard::testing
