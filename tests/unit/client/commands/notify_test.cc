// Tests notify against the fake server: who gets word of jobs, and what became of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NotifyVerbs : public ::testing::Test {
 protected:
  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(NotifyVerbs, ATargetIsAddedListedTestedAndRemoved) {
  EXPECT_THAT(runner_.Run({"notify", "ls"}).err, HasSubstr("nobody gets word of your jobs"));
  const CommandResult added =
      runner_.Run({"notify", "add", "--webhook", "https://hooks.example", "--on", "start,stuck"});
  EXPECT_EQ(added.exit_code, 0) << added.err;
  EXPECT_EQ(added.out, "whsec_key\n") << "the key alone, so that a script can take it";
  EXPECT_THAT(added.err, AllOf(HasSubstr("goes to https://hooks.example on start,stuck"),
                               HasSubstr("`trainyard notify test webhook` tries it")));
  const CommandResult mail = runner_.Run({"notify", "add", "--mail", "anna@lab.example"});
  EXPECT_THAT(mail.out, IsEmpty()) << "mail is not signed";
  EXPECT_THAT(mail.err, HasSubstr("goes to anna@lab.example on end,failure"));

  const CommandResult tested = runner_.Run({"notify", "test", "webhook"});
  EXPECT_EQ(tested.exit_code, 0) << tested.err;
  EXPECT_THAT(tested.err, HasSubstr("delivered to https://hooks.example: 200"));
  const CommandResult listed = runner_.Run({"notify", "ls"});
  EXPECT_THAT(listed.out, AllOf(HasSubstr("TARGET"), HasSubstr("anna@lab.example"),
                                HasSubstr("start,stuck"), HasSubstr("delivered (200)")));
  EXPECT_EQ(runner_.Run({"notify", "ls", "-o", "name"}).out, "mail\nwebhook\n");

  EXPECT_THAT(runner_.Run({"notify", "rm", "mail", "webhook"}).err,
              AllOf(HasSubstr("target mail is removed"), HasSubstr("target webhook is removed")));
  EXPECT_THAT(runner_.Run({"notify", "ls"}).out, IsEmpty());
}

TEST_F(NotifyVerbs, MistakesAreTold) {
  const CommandResult unknown = runner_.Run({"notify", "add", "--mail", "a@b", "--on", "lunch"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'lunch' is no event; expected start, end, failure or stuck"));
  EXPECT_EQ(runner_.Run({"notify", "add", "--mail", "a@b"}).exit_code, 0);
  const CommandResult twice = runner_.Run({"notify", "add", "--mail", "a@b"});
  EXPECT_EQ(twice.exit_code, 6);
  EXPECT_THAT(twice.err, HasSubstr("there is a target 'mail' already"));
  for (const char* verb : {"rm", "test"}) {
    const CommandResult missing = runner_.Run({"notify", verb, "nobody"});
    EXPECT_EQ(missing.exit_code, 3) << verb;
    EXPECT_THAT(missing.err, HasSubstr("there is no target 'nobody'"));
  }
}

TEST_F(NotifyVerbs, AMessageThatIsNotDeliveredIsAnErrorAndInTheLog) {
  EXPECT_THAT(runner_.Run({"notify", "log"}).err, HasSubstr("nothing was told yet"));
  EXPECT_EQ(runner_.Run({"notify", "add", "--mail", "anna@lab.example"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"notify", "test", "mail"}).exit_code, 0);
  server_.FailDeliveries("connection refused");
  const CommandResult failed = runner_.Run({"notify", "test", "mail"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err,
              HasSubstr("nothing was delivered to anna@lab.example: connection refused"));
  const CommandResult log = runner_.Run({"notify", "log"});
  EXPECT_EQ(log.exit_code, 0) << log.err;
  EXPECT_THAT(log.out, AllOf(HasSubstr("given up"), HasSubstr("delivered"), HasSubstr("test")));
  EXPECT_EQ(runner_.Run({"notify", "log", "mail", "--limit", "1", "-o", "name"}).out,
            "delivery-2\n");
}

}  // namespace
}  // namespace trainyard::testing
