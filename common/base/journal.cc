// Writes entries for systemd's journal.
#include "common/base/journal.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

constexpr char kPrefix[] = "TRAINYARD_";

// A value with a newline has its length before it: 8 bytes, the least significant first.
void AppendField(absl::string_view name, absl::string_view value, std::string& entry) {
  absl::StrAppend(&entry, name);
  if (value.find('\n') == absl::string_view::npos) {
    absl::StrAppend(&entry, "=", value, "\n");
    return;
  }
  entry += '\n';
  for (int shift = 0; shift < 64; shift += 8) {
    entry += static_cast<char>((uint64_t{value.size()} >> shift) & 0xFFU);
  }
  absl::StrAppend(&entry, value, "\n");
}

std::string FieldName(absl::string_view name) {
  std::string field = absl::StrCat(kPrefix, absl::AsciiStrToUpper(name));
  for (char& c : field) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return field;
}

// Returns false if the path is too long for an address.
bool AddressOf(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

}  // namespace

std::string JournalEntry(int priority, absl::string_view program, absl::string_view message,
                         const JournalFields& fields) {
  std::string entry = absl::StrCat("PRIORITY=", priority, "\nSYSLOG_IDENTIFIER=", program, "\n");
  std::string text(message);
  for (const auto& [name, value] : fields) absl::StrAppend(&text, " ", name, "=", value);
  AppendField("MESSAGE", text, entry);
  for (const auto& [name, value] : fields) AppendField(FieldName(name), value, entry);
  return entry;
}

std::optional<Journal> Journal::Behind(int fd, const std::string& folder) {
  sockaddr_un peer{};
  socklen_t size = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return std::nullopt;
  if (peer.sun_family != AF_UNIX || size <= offsetof(sockaddr_un, sun_path)) return std::nullopt;
  const size_t room = size - offsetof(sockaddr_un, sun_path);
  if (folder + "/stdout" != std::string(peer.sun_path, strnlen(peer.sun_path, room))) {
    return std::nullopt;
  }
  const int socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) return std::nullopt;
  return Journal(socket_fd, folder + "/socket");
}

bool Journal::Send(const std::string& entry) const {
  sockaddr_un address;
  if (!AddressOf(path_, address)) return false;
  const ssize_t sent = sendto(fd_, entry.data(), entry.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return sent == static_cast<ssize_t>(entry.size());
}

}  // namespace trainyard
