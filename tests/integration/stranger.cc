// Writes frames by hand, since no library breaks the rules of HTTP/2 on request.
#include "tests/integration/stranger.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/rpc/channel.h"
#include "server/access/rules.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

sockaddr_in NameOf(const std::string& host, uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &name.sin_addr), 1);
  return name;
}

}  // namespace

UniqueFd ConnectFrom(const std::string& source, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {30, 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, option, &patience, sizeof(patience)), 0);
  }
  const sockaddr_in from = NameOf(source, 0);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
  const sockaddr_in to = NameOf("127.0.0.1", port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return {};
  return fd;
}

std::unique_ptr<tls::TlsClient> OpenTls(const std::string& source, uint16_t port,
                                        const tls::TlsClient::Options& options) {
  UniqueFd fd = ConnectFrom(source, port);
  if (!fd.valid()) return nullptr;
  auto client = std::make_unique<tls::TlsClient>(std::move(fd), options);
  return client->Handshake() ? std::move(client) : nullptr;
}

bool IsServed(uint16_t port, const tls::TlsClient::Options& options) {
  const auto client = OpenTls("127.0.0.1", port, options);
  return client != nullptr &&
         client->Write(absl::StrCat(kPreface, Frame(kSettingsFrame, 0, 0, ""))) &&
         !client->Read().empty();
}

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string frame;
  const auto add = [&frame](uint64_t number, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) frame += static_cast<char>(number >> (8 * i));
  };
  add(payload.size(), 3);
  add(type, 1);
  add(flags, 1);
  add(stream, 4);
  return absl::StrCat(frame, payload);
}

std::string Header(absl::string_view name, absl::string_view value, bool is_remembered) {
  EXPECT_LT(name.size(), 127u);
  EXPECT_LT(value.size(), 127u);
  return absl::StrCat(std::string(1, is_remembered ? '\x40' : '\0'),
                      std::string(1, static_cast<char>(name.size())), name,
                      std::string(1, static_cast<char>(value.size())), value);
}

std::string CallHeaders(const std::string& method, bool is_remembered) {
  std::string headers;
  for (const auto& [name, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                    {":scheme", "http"},
                                    {":path", method},
                                    {":authority", "lab"},
                                    {"te", "trailers"},
                                    {"content-type", "application/grpc"}}) {
    headers += Header(name, value, is_remembered);
  }
  return headers;
}

std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const access::Rule& rule : access::kRules) {
    methods.push_back(absl::StrCat("/trainyard.v1.", rule.rpc));
  }
  return methods;
}

int64_t ResidentBytes(pid_t process) {
  const std::string status = ReadFile(absl::StrCat("/proc/", process, "/status")).value_or("");
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    int64_t kilobytes = 0;
    if (absl::ConsumePrefix(&line, "VmRSS:") && absl::ConsumeSuffix(&line, " kB") &&
        absl::SimpleAtoi(line, &kilobytes)) {
      return kilobytes * 1024;
    }
  }
  ADD_FAILURE() << "process " << process << " has no memory: " << status;
  return 0;
}

}  // namespace trainyard::testing
