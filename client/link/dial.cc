// Errors travel with all their details, so that the client tells them as if the server's host were
// its own.
#include "client/link/dial.h"

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/link/relay.h"
#include "common/base/strings.h"
#include "common/rpc/status.h"

namespace trainyard::link {
namespace {

// The line begins after a newline, because what the shell printed may not end with one.
constexpr absl::string_view kMark = "\ntrainyard-dial ";
constexpr absl::string_view kServerIs = "1 ok ";
constexpr absl::string_view kThereIsNone = "1 error ";
constexpr size_t kAddressBytesMax = 4096;

absl::StatusOr<std::string> Read(absl::string_view line) {
  if (absl::ConsumePrefix(&line, kServerIs)) return PlainText(std::string(line), kAddressBytesMax);
  std::string bytes;
  google::rpc::Status wire;
  if (absl::ConsumePrefix(&line, kThereIsNone) && absl::Base64Unescape(line, &bytes) &&
      wire.ParseFromString(bytes) && wire.code() != 0) {
    wire.set_message(PlainText(wire.message(), rpc::kMessageBytesMax));
    return rpc::FromStatusProto(wire);
  }
  return absl::UnavailableError(
      "the trainyard of that host answers in a way that this one does not understand; install the "
      "same version on both");
}

}  // namespace

std::string GreetingLine(const absl::StatusOr<std::string>& server) {
  if (server.ok()) return absl::StrCat(kMark, kServerIs, *server, "\n");
  return absl::StrCat(kMark, kThereIsNone,
                      absl::Base64Escape(rpc::ToStatusProto(server.status()).SerializeAsString()),
                      "\n");
}

std::optional<Greeting> FindGreeting(absl::string_view received) {
  const size_t mark = received.find(kMark);
  if (mark == absl::string_view::npos) return std::nullopt;
  const size_t begin = mark + kMark.size();
  const size_t end = received.find('\n', begin);
  if (end == absl::string_view::npos) return std::nullopt;
  return Greeting{Read(received.substr(begin, end - begin)), end + 1};
}

void CarryStdio(int server, int in, int out) {
  for (const int fd : {server, in, out}) SetNonBlocking(fd);
  OneWay to_server(in, server);
  OneWay to_client(server, out);
  // Once one end has gone, the other one has nobody to talk to.
  while (to_server.is_open() && to_client.is_open()) {
    std::array<pollfd, 4> fds = {to_server.ToRead(), to_server.ToWrite(), to_client.ToRead(),
                                 to_client.ToWrite()};
    poll(fds.data(), fds.size(), -1);
    to_server.Move();
    to_client.Move();
  }
}

}  // namespace trainyard::link
