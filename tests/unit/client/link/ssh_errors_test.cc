// Tests how the messages of OpenSSH are told. They are as version 9.2 writes them.
#include "client/link/ssh_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/daemons/child.h"
#include "client/link/exit_code.h"
#include "common/base/errors.h"

namespace trainyard::link {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::Status Told(SshPhase phase, int exit_code, absl::string_view written) {
  SshAddress address;
  address.host = "lab";
  return SshError(address, phase, exit_code, written);
}

TEST(SshErrors, ARefusedKeyIsNotAllowed) {
  const absl::Status status = Told(SshPhase::kConnecting, 255,
                                   "Warning: Permanently added 'lab' (ED25519) to the list of "
                                   "known hosts.\r\nanna@lab: Permission denied (publickey).\r\n");
  EXPECT_EQ(ExitCodeOf(status), kNotAllowed);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("ssh to 'lab' failed: anna@lab: Permission denied (publickey); "),
                    HasSubstr("authorized_keys"), HasSubstr("\n  ssh: Warning: Permanently")));
}

TEST(SshErrors, AnUnknownHostKeyIsNotAllowedAndTheWarningIsShown) {
  const absl::Status status =
      Told(SshPhase::kConnecting, 255,
           "@@@@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
           "Host key verification failed.\r\n");
  EXPECT_EQ(ExitCodeOf(status), kNotAllowed);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("ssh to 'lab' failed: Host key verification failed; "),
                    HasSubstr("IDENTIFICATION HAS CHANGED")));
}

TEST(SshErrors, AHostThatIsNotThereIsUnreachable) {
  for (const char* written :
       {"ssh: Could not resolve hostname lab: Name or service not known\r\n",
        "ssh: connect to host lab port 22: Connection refused\r\n",
        "kex_exchange_identification: Connection closed by remote host\r\n"}) {
    const absl::Status status = Told(SshPhase::kConnecting, 255, written);
    EXPECT_EQ(ExitCodeOf(status), kUnreachable) << written;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("ssh: ")));
  }
}

TEST(SshErrors, AHostWithoutTrainyardIsSaidToBeOne) {
  const absl::Status status = Told(SshPhase::kConnecting, 127, "sh: 1: trainyard: not found\n");
  EXPECT_EQ(ExitCodeOf(status), kUnreachable);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("there is no trainyard on that host"),
                                                   HasSubstr("install it there")));
}

TEST(SshErrors, AnotherEndOfTheShellIsToldWithItsCode) {
  EXPECT_THAT(std::string(Told(SshPhase::kConnecting, 1, "This account is closed.\n").message()),
              HasSubstr("its shell ended with code 1 (This account is closed)"));
  EXPECT_THAT(std::string(Told(SshPhase::kConnecting, 255, "").message()),
              HasSubstr("it ended with code 255 and said nothing"));
}

TEST(SshErrors, WithoutSshItSaysHowToInstallIt) {
  EXPECT_THAT(
      std::string(Told(SshPhase::kConnecting, daemons::Companion::kCannotStart, "").message()),
      HasSubstr("there is no program 'ssh' in your PATH; install it"));
}

TEST(SshErrors, ALostConnectionMayBeTriedAgain) {
  const absl::Status status = Told(SshPhase::kCarrying, 255, "Timeout, server lab not responding.");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the connection ended (Timeout, server lab not responding)"));
}

TEST(SshErrors, AServerThatClosesTheConnectionIsNoFaultOfSsh) {
  const absl::Status status = Told(SshPhase::kCarrying, 0, "");
  EXPECT_EQ(ErrorReason(status), "SERVER_UNREACHABLE");
  EXPECT_THAT(std::string(status.message()),
              StartsWith("no server answers on 'lab': it closed the connection"));
}

TEST(SshErrors, TextOfTheHostCannotControlTheTerminalOrFillIt) {
  std::string written;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&written, "line ", i, " \x1b]0;evil\x07\n");
  const std::string message(Told(SshPhase::kConnecting, 255, written).message());
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
  EXPECT_THAT(message, AllOf(HasSubstr("line 999"), Not(HasSubstr("line 900"))));
}

}  // namespace
}  // namespace trainyard::link
