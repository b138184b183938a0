// Tests secrets against the fake server: where a value may come from, and that none is shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SecretVerbs : public ::testing::Test {
 protected:
  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(SecretVerbs, AValueComesFromInputFileOrTerminalAndIsNeverShown) {
  const CommandResult piped = runner_.Run({"secrets", "set", "piped", "-"}, "hunter2\n");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_THAT(piped.err, AllOf(HasSubstr("secret piped is set (8 bytes)"),
                               HasSubstr("$TRAINYARD_SECRETS/piped"), Not(HasSubstr("hunter2"))));
  EXPECT_EQ(server_.SecretValue("piped"), "hunter2\n") << "byte for byte";
  const std::string file = runner_.home.Write("token", "of a file");
  EXPECT_EQ(runner_.Run({"secrets", "set", "filed", "--file", file}).exit_code, 0);
  EXPECT_EQ(server_.SecretValue("filed"), "of a file");
  const CommandResult asked = runner_.Run({"secrets", "set", "typed"}, "swordfish\n");
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.err, HasSubstr("Value of typed (it is not shown): "));
  EXPECT_EQ(server_.SecretValue("typed"), "swordfish") << "a line that was typed has no end";

  const CommandResult listed = runner_.Run({"secrets", "ls"});
  EXPECT_THAT(listed.out, AllOf(HasSubstr("SECRET"), HasSubstr("filed"), HasSubstr("piped"),
                                Not(HasSubstr("swordfish"))));
  EXPECT_EQ(runner_.Run({"secrets", "ls", "-o", "name"}).out, "filed\npiped\ntyped\n");
  EXPECT_THAT(runner_.Run({"secrets", "rm", "filed", "piped", "typed"}).err,
              HasSubstr("secret typed is removed"));
  const CommandResult none = runner_.Run({"secrets", "ls"});
  EXPECT_THAT(none.out, IsEmpty());
  EXPECT_THAT(none.err, HasSubstr("no secrets; `trainyard secrets set NAME` makes one"));
}

TEST_F(SecretVerbs, AValueThatOthersWouldSeeIsRefused) {
  const CommandResult result = runner_.Run({"secrets", "set", "token", "hunter2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("would be seen by others"), Not(HasSubstr("hunter2"))));
  EXPECT_EQ(server_.SecretValue("token"), "");
}

TEST_F(SecretVerbs, ValuesThatAreMissingOrTooLargeAreRefused) {
  const CommandResult unasked = runner_.Run({"secrets", "set", "token"});
  EXPECT_EQ(unasked.exit_code, 2);
  EXPECT_THAT(unasked.err, HasSubstr("there is no terminal to ask for the value"));
  const CommandResult empty = runner_.Run({"secrets", "set", "token", "-"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("the value is empty"));
  const std::string large(64 * 1024 + 1, 'x');
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"secrets", "set", "token", "-"},
        {"secrets", "set", "token", "--file", runner_.home.Write("large", large)}}) {
    const CommandResult result = runner_.Run(args, large);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("more than 64 KiB"));
  }
  const std::string nowhere = runner_.home.File("nowhere");
  EXPECT_EQ(runner_.Run({"secrets", "set", "token", "--file", nowhere}).exit_code, 3);
  EXPECT_EQ(server_.SecretValue("token"), "");
}

TEST_F(SecretVerbs, ASecretThatIsNotThereCannotBeRemoved) {
  const CommandResult result = runner_.Run({"secrets", "rm", "token"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("there is no secret 'token'"));
}

}  // namespace
}  // namespace trainyard::testing
