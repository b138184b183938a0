// Defines what the worker daemon and trainyard-enter tell each other over a socket that keeps the
// bounds of messages. The daemon hears that the other end is open, with a descriptor where there is
// one, and how it ends. The helper hears signals, and ends when the socket is closed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"

namespace trainyard::enter {

// The descriptor of that socket in the helper.
inline constexpr int kControlFd = 3;
// A message is cut to this size.
inline constexpr size_t kMessageBytesMax = 2048;

// The command is about to be executed, or the connection is made. The descriptor is the daemon's
// end of the terminal, or the connection.
struct Opened {
  UniqueFd descriptor = {};
};
// The command has ended.
struct Ended {
  int code = 0;
  int signal = 0;  // 0 if it exited by itself
};
// It could not be done, or was cut short. Nothing follows.
struct Failed {
  std::string reason;  // UPPER_SNAKE_CASE, as TunnelFailure has it
  std::string message;
};
// The daemon wants a signal to be sent to the command.
struct Signal {
  int number = 0;
};
using Message = std::variant<Opened, Ended, Failed, Signal>;

// Reads a message, without its descriptor. Returns INVALID_ARGUMENT for a text that is none.
absl::StatusOr<Message> ParseMessage(absl::string_view text);
std::string MessageText(const Message& message);

// Sends a message, with its descriptor. Errors mean that the other end has gone, and are ignored:
// the next Receive tells.
void SendMessage(int socket, const Message& message);
// Receives a message without waiting. Returns nothing if there is none, and an error if the other
// end has closed the socket or has sent something else.
absl::StatusOr<std::optional<Message>> ReceiveMessage(int socket);

}  // namespace trainyard::enter
