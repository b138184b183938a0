// Tests addresses such as ssh://anna@lab:2222/run/x.sock, and how ssh is called for them.
#include "client/link/ssh_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/daemons/child.h"

namespace trainyard::link {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SshAddress, AllPartsButTheHostMayBeLeftOut) {
  const auto full = ParseSshAddress("ssh://anna@lab.example:2222/run/trainyard/a.sock");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->user, "anna");
  EXPECT_EQ(full->host, "lab.example");
  EXPECT_EQ(full->port, 2222);
  EXPECT_EQ(full->path, "/run/trainyard/a.sock");
  const auto bare = ParseSshAddress("ssh://lab");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->user, "");
  EXPECT_EQ(bare->host, "lab");
  EXPECT_EQ(bare->port, 0);
  EXPECT_EQ(bare->path, "");
  EXPECT_EQ(ParseSshAddress("ssh://lab/")->path, "");
}

TEST(SshAddress, AnAddressOfIpV6StandsInBrackets) {
  const auto address = ParseSshAddress("ssh://[fe80::1%eth0]:22/x");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->host, "fe80::1%eth0");
  EXPECT_EQ(address->port, 22);
  EXPECT_EQ(ParseSshAddress("ssh://[::1]")->port, 0);
}

TEST(SshAddress, AnAccountMayContainAnAt) {
  EXPECT_EQ(ParseSshAddress("ssh://anna@example.org@lab")->user, "anna@example.org");
}

TEST(SshAddress, TextAndAddressAreTheSame) {
  for (const char* text : {"ssh://lab", "ssh://anna@lab:2222/run/a.sock", "ssh://[::1]:7/x"}) {
    EXPECT_EQ(ParseSshAddress(text)->ToString(), text);
  }
}

TEST(SshAddress, WhatCouldBeAnOptionOrACommandIsRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"ssh://", "has no host"},
      {"ssh://@lab", "has no user"},
      {"ssh:///run/x.sock", "has no host"},
      {"ssh://-oProxyCommand=evil", "has a host that begins with '-'"},
      {"ssh://-l@lab", "has a user that begins with '-'"},
      {"ssh://lab;rm", "has a host with the character ';'"},
      {"ssh://$(id)", "has a host with the character '$'"},
      {"ssh://a b", "has a host with the character ' '"},
      {"ssh://lab\nx", "has a host with the character"},
      {std::string("ssh://lab\0x", 11), "has a host with the character"},
      {"ssh://`id`@lab", "has a user with the character '`'"},
      {"ssh://a%h", "has a host with the character '%'"},
      {"ssh://::1", "has an IPv6 address without brackets"},
      {"ssh://lab:", "has a port that is no number from 1 to 65535"},
      {"ssh://lab:0", "has a port that is no number"},
      {"ssh://lab:65536", "has a port that is no number"},
      {"ssh://lab:-22", "has a port that is no number"},
      {"ssh://lab/a b", "has a path with a blank"},
      {"ssh://lab/a\x1b[m", "has a path with a blank, a control character"},
      {"ssh://lab/x?y", "one of ?#%"},
      {"ssh://" + std::string(254, 'a'), "has a host that is too long"},
      {"ssh://lab/" + std::string(107, 'a'), "has a path of 108 bytes; sockets take 107"},
      {"http://lab", "does not begin with ssh://"}};
  for (const auto& [text, why] : cases) {
    const auto address = ParseSshAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(why));
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("use ssh://[USER@]HOST"));
    EXPECT_THAT(std::string(address.status().message()), Not(HasSubstr("\x1b")));
  }
}

TEST(SshAddress, APasswordIsRefusedAndNotRepeated) {
  const auto address = ParseSshAddress("ssh://anna:secret@lab");
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(std::string(address.status().message()), HasSubstr("has a password"));
  EXPECT_THAT(std::string(address.status().message()), Not(HasSubstr("secret")));
}

TEST(SshCommand, TheHostCannotBeAnOption) {
  const std::vector<std::string> args =
      SshCommand(*ParseSshAddress("ssh://anna@lab:2222/x.sock"), Prompts::kAllowed);
  const std::vector<std::string> end(args.end() - 7, args.end());
  EXPECT_THAT(end, ElementsAre("-p", "2222", "-l", "anna", "--", "lab", RemoteCommand("/x.sock")));
  EXPECT_THAT(args, Not(Contains("BatchMode=yes")));
  EXPECT_THAT(SshCommand(*ParseSshAddress("ssh://lab"), Prompts::kForbidden),
              Contains("BatchMode=yes"));
}

// Returns what a shell makes of a word: it prints its arguments, one in each line.
std::string Seen(const std::string& word) {
  const auto result =
      daemons::RunChild({"/bin/sh", "-c", "set -f; printf '%s\\n' " + word}, "", absl::Seconds(30));
  return result.ok() ? result->out : result.status().ToString();
}

TEST(ShellWord, AShellSeesTheTextAndNothingElse) {
  for (const char* text : {"plain", "", "two words", "$HOME `id` $(id)", "it's", "'", "a\nb", "-n",
                           "\\", "\"", "*", ";exit"}) {
    EXPECT_EQ(Seen(ShellWord(text)), std::string(text) + "\n");
  }
}

TEST(RemoteCommand, TheProgramGetsThePathAsItIs) {
  // A program of that name prints its arguments.
  const std::string script =
      "d=$(mktemp -d); printf '#!/bin/sh\\nprintf \"<%%s>\" \"$@\"\\n' > $d/trainyard; "
      "chmod +x $d/trainyard; PATH=$d:$PATH; (" +
      RemoteCommand("/it's/a;b") + "); (" + RemoteCommand("") + "); rm -r $d";
  const auto result = daemons::RunChild({"/bin/sh", "-c", script}, "", absl::Seconds(30));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "<dial-stdio></it's/a;b><dial-stdio>") << result->err;
}

}  // namespace
}  // namespace trainyard::link
