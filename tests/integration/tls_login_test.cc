// Signs in at a terminal: the client shows the certificate of a server that it does not know, and
// asks once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "common/base/files.h"
#include "tests/integration/tls_yard.h"
#include "tests/testing/terminal.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrust[] = "Trust this server? [y/N] ";
constexpr char kToken[] = "Token (it is not shown): ";

class TlsLoginTest : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartServer(); }

  // Starts `trainyard ARGS` at the terminal.
  std::unique_ptr<Process> Start(const std::vector<std::string>& args) {
    terminal_.Clear();
    return laptop_.Start(args, "client", terminal_.path());
  }
  // Waits until the client asks, or ends without that.
  bool IsAsked(Process& client, absl::string_view question) {
    bool is_asked = false;
    WaitUntil(
        [&] {
          is_asked = absl::EndsWith(terminal_.Shown(), question);
          return is_asked || !client.running();
        },
        kPatience);
    return is_asked;
  }
  // Returns the exit code of the client.
  static int EndOf(Process& client) {
    const auto end = client.Wait(kPatience);
    EXPECT_TRUE(end.ok()) << end.status();
    return end.ok() ? end->exit_code : -1;
  }
  void ExpectNothingStored() {
    EXPECT_EQ(laptop_.Config(), "");
    EXPECT_FALSE(FileExists(laptop_.home().File(".config/trainyard/servers")));
  }

  TlsYard host_;
  Laptop laptop_;
  Terminal terminal_;
};

TEST_F(TlsLoginTest, WhoeverTrustsTheServerTypesTheTokenUnseen) {
  const std::string token = host_.CreateToken();
  const auto login = Start({"login", host_.target()});
  ASSERT_TRUE(IsAsked(*login, kTrust)) << terminal_.Shown();
  EXPECT_THAT(terminal_.Shown(),
              AllOf(HasSubstr("The server at " + host_.target()), HasSubstr(host_.fingerprint())));
  terminal_.Type("y\n");
  ASSERT_TRUE(IsAsked(*login, kToken)) << terminal_.Shown();
  terminal_.Type(token + "\n");
  EXPECT_EQ(EndOf(*login), 0);
  EXPECT_THAT(terminal_.Shown(), AllOf(HasSubstr(std::string(kTrust) + "y\n"),
                                       HasSubstr("\nsigned in to " + host_.address()),
                                       Not(HasSubstr(token.substr(4, 8)))));
  EXPECT_EQ(laptop_.Run({"ls"}).exit_code, 0);
  // The server is known now, and the client does not ask about it again.
  const auto again = Start({"login", host_.target()});
  ASSERT_TRUE(IsAsked(*again, kToken)) << terminal_.Shown();
  EXPECT_THAT(terminal_.Shown(), Not(HasSubstr(kTrust)));
  terminal_.Type(Terminal::kEndOfInput);
  EXPECT_EQ(EndOf(*again), 2) << terminal_.Shown();
  EXPECT_EQ(laptop_.Run({"ls"}).exit_code, 0) << "the token of before is kept";
}

TEST_F(TlsLoginTest, AnyAnswerButYesStoresNothing) {
  for (const absl::string_view answer : {absl::string_view("n\n"), absl::string_view("\n"),
                                         absl::string_view("what?\n"), Terminal::kEndOfInput}) {
    SCOPED_TRACE(std::string(answer));
    const auto login = Start({"login", host_.target()});
    ASSERT_TRUE(IsAsked(*login, kTrust)) << terminal_.Shown();
    terminal_.Type(answer);
    EXPECT_NE(EndOf(*login), 0);
    EXPECT_THAT(terminal_.Shown(),
                AllOf(HasSubstr("\nerror: nothing was stored\n"), Not(HasSubstr(kToken))));
    ExpectNothingStored();
  }
  const auto login = Start({"login", host_.target()});
  ASSERT_TRUE(IsAsked(*login, kTrust)) << terminal_.Shown();
  login->Signal(SIGINT);
  EXPECT_NE(EndOf(*login), 0);
  ExpectNothingStored();
}

TEST_F(TlsLoginTest, TheEndOfInputIsNoYesToAQuestionThatExpectsOne) {
  const std::string job = host_.yard().Submit(SmallSpec("first", 1, 1, 500));
  const auto clone = Start({"--server", host_.yard().address(), "clone", job});
  ASSERT_TRUE(IsAsked(*clone, "submit it? [Y/n] ")) << terminal_.Shown();
  terminal_.Type(Terminal::kEndOfInput);
  EndOf(*clone);
  EXPECT_THAT(terminal_.Shown(), HasSubstr("[Y/n] \nnothing was submitted\n"));
}

}  // namespace
}  // namespace trainyard::testing
