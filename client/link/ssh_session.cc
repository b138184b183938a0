// Reads the greeting of the other end, and explains why there is none.
#include "client/link/ssh_session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client/link/dial.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/server_errors.h"
#include "common/base/status_macros.h"

namespace trainyard::link {
namespace {

// The last messages say why ssh has ended. A host may send messages without end.
constexpr size_t kMessageBytesMax = size_t{16} << 10;

// Returns true if there is a terminal on which ssh can ask.
bool HasTerminal() {
  return UniqueFd(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)).valid();
}

// Appends what can be read at once. Returns false at the end.
bool ReadSome(int fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t got = read(fd, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// Returns an error of the other end with the host in front.
absl::Status AtHost(const std::string& host, const absl::Status& status) {
  absl::Status result(status.code(), absl::StrCat("on '", host, "': ", status.message()));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SshSession>> SshSession::Start(const SshAddress& address,
                                                              Prompts prompts, Clock& clock) {
  const bool may_ask = prompts == Prompts::kAllowed && HasTerminal();
  TY_ASSIGN_OR_RETURN(daemons::Companion ssh,
                      daemons::Companion::Start(SshCommand(address, prompts)));
  const absl::Duration deadline = clock.Uptime() + (may_ask ? kPromptTimeout : kOpenTimeout);
  return std::unique_ptr<SshSession>(new SshSession(address, std::move(ssh), deadline, clock));
}

SshSession::SshSession(const SshAddress& address, daemons::Companion ssh, absl::Duration deadline,
                       Clock& clock)
    : address_(address), ssh_(std::move(ssh)), deadline_(deadline), clock_(clock) {}

absl::StatusOr<bool> SshSession::Open() {
  const bool has_ended = !ReadSome(out(), received_);
  const std::optional<Greeting> greeting = FindGreeting(received_);
  if (greeting.has_value()) {
    if (!greeting->server.ok()) return AtHost(address_.host, greeting->server.status());
    received_.erase(0, greeting->bytes);
    return true;
  }
  if (has_ended) return End(SshPhase::kConnecting);
  const auto fail = [this](absl::string_view cause, absl::string_view advice) {
    return error::SshFailed(absl::StatusCode::kUnavailable, address_.host, cause, advice);
  };
  if (received_.size() > kNoiseBytesMax) {
    return fail("the shell of that account prints without end",
                "let its startup files print nothing unless the shell is interactive");
  }
  if (TimeLeft() > absl::ZeroDuration()) return false;
  ReadMessages();
  return fail(absl::StrCat("no answer in time", messages_.empty() ? "" : ": ", messages_),
              "see what `ssh HOST trainyard version` says");
}

absl::Duration SshSession::TimeLeft() const {
  return std::max(deadline_ - clock_.Uptime(), absl::ZeroDuration());
}

bool SshSession::ReadMessages() {
  const bool is_open = ReadSome(err(), messages_);
  if (messages_.size() > kMessageBytesMax) {
    messages_.erase(0, messages_.size() - kMessageBytesMax);
  }
  return is_open;
}

absl::Status SshSession::Finish() {
  return End(SshPhase::kCarrying);
}

absl::Status SshSession::End(SshPhase phase) {
  const int exit_code = ssh_.End();
  // A connection that ssh shares with others may keep stderr open after the end, so what is there
  // must do.
  size_t before = 0;
  do {
    before = messages_.size();
  } while (ReadMessages() && messages_.size() > before);
  return SshError(address_, phase, exit_code, messages_);
}

}  // namespace trainyard::link
