// Knows the messages of OpenSSH that people meet most. Others are passed on as they are.
#include "client/link/ssh_errors.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/daemons/child.h"
#include "common/base/errors.h"
#include "common/base/server_errors.h"
#include "common/base/strings.h"

namespace trainyard::link {
namespace {

// ssh ends with this code if it fails by itself, and else with the code of the remote command.
constexpr int kSshFailed = 255;
constexpr int kCommandNotFound = 127;

constexpr size_t kLineBytesMax = 400;
// The longest warning of ssh, that a host's key has changed, has 13 lines.
constexpr size_t kLinesMax = 16;

struct Advice {
  absl::string_view words;  // of ssh
  absl::StatusCode code;
  absl::string_view text;
};

constexpr Advice kAdvices[] = {
    {"Permission denied", absl::StatusCode::kPermissionDenied,
     "that account does not accept your keys; whatever makes `ssh HOST` work makes this work, such "
     "as a key in its ~/.ssh/authorized_keys"},
    {"Too many authentication failures", absl::StatusCode::kPermissionDenied,
     "your agent offers too many keys; name the right one with IdentityFile and IdentitiesOnly in "
     "~/.ssh/config"},
    {"Host key verification failed", absl::StatusCode::kPermissionDenied,
     "ssh does not know the key of that host, or the key has changed; compare it, and run `ssh "
     "HOST` once to accept it"},
    {"Could not resolve hostname", absl::StatusCode::kUnavailable,
     "check the name, or give it a Host entry in ~/.ssh/config"},
};
constexpr Advice kOtherwise = {"", absl::StatusCode::kUnavailable, "see what `ssh HOST true` says"};

const Advice& AdviceFor(absl::string_view cause) {
  for (const Advice& advice : kAdvices) {
    if (absl::StrContains(cause, advice.words)) return advice;
  }
  return kOtherwise;
}

// Returns the lines that say something, without what terminals would obey.
std::vector<std::string> Lines(absl::string_view written) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(written, absl::ByAnyChar("\r\n"))) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) lines.push_back(PlainText(std::string(text), kLineBytesMax));
  }
  if (lines.size() > kLinesMax) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(kLinesMax));
  }
  return lines;
}

// Takes the last line, which says why ssh has ended.
std::string TakeCause(std::vector<std::string>& lines, int exit_code) {
  if (lines.empty()) return absl::StrCat("it ended with code ", exit_code, " and said nothing");
  std::string cause = std::move(lines.back());
  lines.pop_back();
  return std::string(absl::StripSuffix(absl::StripPrefix(cause, "ssh: "), "."));
}

std::string Rest(const std::vector<std::string>& lines) {
  std::string rest;
  for (const std::string& line : lines) absl::StrAppend(&rest, "\n  ssh: ", line);
  return rest;
}

}  // namespace

absl::Status SshError(const SshAddress& address, SshPhase phase, int exit_code,
                      absl::string_view written) {
  std::vector<std::string> lines = Lines(written);
  std::string cause = TakeCause(lines, exit_code);
  if (exit_code == daemons::Companion::kCannotStart && written.empty()) {
    return error::SshFailed(absl::StatusCode::kUnavailable, address.host,
                            "there is no program 'ssh' in your PATH",
                            "install it (Debian: apt install openssh-client)");
  }
  if (phase == SshPhase::kCarrying && exit_code == 0) {
    return error::NoServer(absl::StrCat(" on '", address.host, "': it closed the connection"),
                           "try again in a moment, since it may be starting again");
  }
  if (phase == SshPhase::kCarrying) {
    return error::SshFailed(absl::StatusCode::kUnavailable, address.host,
                            absl::StrCat("the connection ended (", cause, ")"), "try again");
  }
  if (exit_code == kCommandNotFound) {
    return error::SshFailed(
        absl::StatusCode::kUnavailable, address.host,
        absl::StrCat("there is no trainyard on that host (", cause, ")"),
        "install it there, in /usr/local/bin or in ~/.local/bin of the account");
  }
  if (exit_code != kSshFailed) {
    return error::SshFailed(
        absl::StatusCode::kUnavailable, address.host,
        absl::StrCat("`trainyard dial-stdio` did not run there; its shell ended "
                     "with code ",
                     exit_code, " (", cause, ")"),
        absl::StrCat("see what `ssh HOST trainyard version` says", Rest(lines)));
  }
  const Advice& advice = AdviceFor(cause);
  return error::SshFailed(advice.code, address.host, cause, absl::StrCat(advice.text, Rest(lines)));
}

}  // namespace trainyard::link
