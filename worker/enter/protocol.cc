// Spells messages as words: "exit 0 0", "fail CANNOT_CONNECT nothing listens there".
#include "worker/enter/protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trainyard::enter {
namespace {

constexpr int kSignalMax = 64;

// A control message with one descriptor, aligned as the kernel wants it.
union Ancillary {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

UniqueFd TakeDescriptor(msghdr& received) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&received); header != nullptr;
       header = CMSG_NXTHDR(&received, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return UniqueFd(descriptor);
  }
  return UniqueFd();
}

}  // namespace

absl::StatusOr<Message> ParseMessage(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  if (words.size() == 1 && words[0] == "opened") return Opened{};
  int number = 0;
  if (words.size() == 2 && words[0] == "signal" && absl::SimpleAtoi(words[1], &number) &&
      number >= 1 && number <= kSignalMax) {
    return Signal{number};
  }
  Ended ended;
  if (words.size() == 3 && words[0] == "exit" && absl::SimpleAtoi(words[1], &ended.code) &&
      absl::SimpleAtoi(words[2], &ended.signal) && ended.code >= 0 && ended.code <= 255 &&
      ended.signal >= 0 && ended.signal <= kSignalMax) {
    return ended;
  }
  if (words.size() == 3 && words[0] == "fail") {
    return Failed{std::string(words[1]), std::string(words[2])};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.substr(0, 100), "' is no message of trainyard-enter"));
}

std::string MessageText(const Message& message) {
  if (const auto* signal = std::get_if<Signal>(&message)) {
    return absl::StrCat("signal ", signal->number);
  }
  if (const auto* ended = std::get_if<Ended>(&message)) {
    return absl::StrCat("exit ", ended->code, " ", ended->signal);
  }
  if (const auto* failed = std::get_if<Failed>(&message)) {
    return absl::StrCat("fail ", failed->reason, " ", failed->message).substr(0, kMessageBytesMax);
  }
  return "opened";
}

void SendMessage(int socket, const Message& message) {
  std::string text = MessageText(message);
  iovec part{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Ancillary ancillary{};
  const auto* opened = std::get_if<Opened>(&message);
  if (opened != nullptr && opened->descriptor.valid()) {
    header.msg_control = ancillary.bytes;
    header.msg_controllen = sizeof ancillary.bytes;
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    const int descriptor = opened->descriptor.get();
    std::memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
  }
  // Whoever has stopped the other end must not stop this one, and what it does not take is lost.
  while (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<std::optional<Message>> ReceiveMessage(int socket) {
  std::array<char, kMessageBytesMax> buffer{};
  iovec part{buffer.data(), buffer.size()};
  Ancillary ancillary{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = ancillary.bytes;
  header.msg_controllen = sizeof ancillary.bytes;
  ssize_t got = 0;
  while ((got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (got <= 0) return absl::UnavailableError("trainyard-enter has gone");
  UniqueFd descriptor = TakeDescriptor(header);
  auto message = ParseMessage({buffer.data(), static_cast<size_t>(got)});
  if (!message.ok()) return message.status();
  if (auto* opened = std::get_if<Opened>(&*message)) opened->descriptor = std::move(descriptor);
  return std::optional<Message>(*std::move(message));
}

}  // namespace trainyard::enter
