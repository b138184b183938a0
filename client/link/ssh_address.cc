// Accepts only characters that mean nothing to a shell, because the user's ssh configuration may
// put the host and the user into a command (`ProxyCommand ... %h`).
#include "client/link/ssh_address.h"

#include <sys/un.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::link {
namespace {

constexpr absl::string_view kPrefix = "ssh://";
// One byte of sun_path is the terminating zero.
constexpr size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
// No name of a host is longer (RFC 1035), and no name of a user either.
constexpr size_t kNameBytesMax = 253;

// A host that does not answer is given up after this many seconds.
constexpr char kConnectTimeout[] = "ConnectTimeout=10";
// A connection that says nothing any more is given up after 30 seconds: ssh asks for a sign of life
// after 10 seconds of silence, and again, before it ends.
constexpr char kAliveInterval[] = "ServerAliveInterval=10";
constexpr char kAliveCount[] = "ServerAliveCountMax=2";

absl::Status BadAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("address '", PlainText(std::string(text), 300),
                                                 "' ", why,
                                                 "; use ssh://[USER@]HOST[:PORT][/path/to.sock]"));
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._-+", c);
}

// Returns what is wrong with the name of a host or of an account, or an empty text.
std::string NameMistake(absl::string_view what, absl::string_view name, absl::string_view more) {
  if (name.empty()) return absl::StrCat("has no ", what);
  if (name.size() > kNameBytesMax) return absl::StrCat("has a ", what, " that is too long");
  if (name.front() == '-') return absl::StrCat("has a ", what, " that begins with '-'");
  const auto bad = std::find_if(name.begin(), name.end(), [&](char c) {
    return !IsNameCharacter(c) && !absl::StrContains(more, c);
  });
  if (bad == name.end()) return "";
  return absl::StrCat("has a ", what, " with the character '",
                      PlainText(std::string(1, *bad), sizeof("?") + 3), "'");
}

// Takes the user off the front of `rest`.
absl::Status TakeUser(absl::string_view text, absl::string_view& rest, std::string& user) {
  const size_t at = rest.rfind('@');
  if (at == absl::string_view::npos) return absl::OkStatus();
  const absl::string_view name = rest.substr(0, at);
  if (absl::StrContains(name, ':')) {
    return BadAddress(absl::StrCat(kPrefix, "...", rest.substr(at)),
                      "has a password, which everybody on this machine could see; ssh asks for it");
  }
  const std::string mistake = NameMistake("user", name, "@");
  if (!mistake.empty()) return BadAddress(text, mistake);
  user = std::string(name);
  rest.remove_prefix(at + 1);
  return absl::OkStatus();
}

// Takes the port off the end of `rest`, which then is the host.
absl::Status TakePort(absl::string_view text, absl::string_view& rest, uint16_t& port) {
  const size_t colon = rest.rfind(':');
  const size_t bracket = rest.rfind(']');
  const bool has_port =
      colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket);
  if (!has_port) return absl::OkStatus();
  uint32_t number = 0;
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &number) || number < 1 || number > 65535) {
    return BadAddress(text, "has a port that is no number from 1 to 65535");
  }
  port = static_cast<uint16_t>(number);
  rest.remove_suffix(rest.size() - colon);
  return absl::OkStatus();
}

// Checks the host, and takes the brackets off an IPv6 address.
absl::Status CheckHost(absl::string_view text, absl::string_view rest, std::string& host) {
  const bool is_ipv6 = absl::ConsumePrefix(&rest, "[") && absl::ConsumeSuffix(&rest, "]");
  if (!is_ipv6 && absl::StrContains(rest, ':')) {
    return BadAddress(text, "has an IPv6 address without brackets");
  }
  const std::string mistake = NameMistake("host", rest, is_ipv6 ? ":%" : "");
  if (!mistake.empty()) return BadAddress(text, mistake);
  host = std::string(rest);
  return absl::OkStatus();
}

absl::Status CheckPath(absl::string_view text, absl::string_view path) {
  if (path.size() > kPathBytesMax) {
    return BadAddress(
        text, absl::StrCat("has a path of ", path.size(), " bytes; sockets take ", kPathBytesMax));
  }
  const bool is_plain = std::all_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && !absl::StrContains("?#%", c);
  });
  if (!is_plain) {
    return BadAddress(text, "has a path with a blank, a control character, or one of ?#%");
  }
  return absl::OkStatus();
}

}  // namespace

std::string SshAddress::ToString() const {
  const bool is_ipv6 = absl::StrContains(host, ':');
  return absl::StrCat(kPrefix, user, user.empty() ? "" : "@", is_ipv6 ? "[" : "", host,
                      is_ipv6 ? "]" : "", port == 0 ? "" : absl::StrCat(":", port), path);
}

bool IsSshAddress(absl::string_view text) {
  return absl::StartsWith(text, kPrefix);
}

absl::StatusOr<SshAddress> ParseSshAddress(absl::string_view text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kPrefix)) return BadAddress(text, "does not begin with ssh://");
  SshAddress address;
  const size_t slash = rest.find('/');
  if (slash != absl::string_view::npos) {
    const absl::string_view path = rest.substr(slash);
    TY_RETURN_IF_ERROR(CheckPath(text, path));
    if (path != "/") address.path = std::string(path);
    rest = rest.substr(0, slash);
  }
  TY_RETURN_IF_ERROR(TakeUser(text, rest, address.user));
  TY_RETURN_IF_ERROR(TakePort(text, rest, address.port));
  TY_RETURN_IF_ERROR(CheckHost(text, rest, address.host));
  return address;
}

std::vector<std::string> SshCommand(const SshAddress& address, Prompts prompts) {
  // The account gets no terminal, no agent and no forwarded ports from us, since the server's
  // socket is all we want.
  std::vector<std::string> args = {"ssh", "-T", "-a", "-x"};
  const auto set = [&args](const std::string& option) { args.insert(args.end(), {"-o", option}); };
  set(kConnectTimeout);
  set(kAliveInterval);
  set(kAliveCount);
  set("ClearAllForwardings=yes");
  if (prompts == Prompts::kForbidden) set("BatchMode=yes");
  if (address.port != 0) args.insert(args.end(), {"-p", absl::StrCat(address.port)});
  if (!address.user.empty()) args.insert(args.end(), {"-l", address.user});
  args.insert(args.end(), {"--", address.host, RemoteCommand(address.path)});
  return args;
}

std::string RemoteCommand(absl::string_view path) {
  // Shells that ssh starts often have a shorter PATH than those of people. The script is in single
  // quotes and needs a plain sh, whatever the shell of the account is.
  return absl::StrCat(
      "exec sh -c 'PATH=$PATH:/usr/local/bin:$HOME/.local/bin:$HOME/bin; "
      "exec trainyard dial-stdio \"$@\"' trainyard",
      path.empty() ? "" : " ", path.empty() ? "" : ShellWord(path));
}

std::string ShellWord(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace trainyard::link
