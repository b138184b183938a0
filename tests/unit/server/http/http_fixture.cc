// Connects clients by pairs of sockets, as the relay does.
#include "tests/unit/server/http/http_fixture.h"

#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/http/channel.h"

namespace trainyard::http {
namespace {

constexpr int kWaitMs = 30'000;

}  // namespace

void RawClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other end has heard enough
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool RawClient::ReadSome() {
  pollfd wanted = {socket_.get(), POLLIN, 0};
  if (poll(&wanted, 1, kWaitMs) != 1) return false;
  char buffer[4096];
  const ssize_t got = recv(socket_.get(), buffer, sizeof(buffer), 0);
  if (got > 0) received_.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

std::string RawClient::ReadTo(absl::string_view text) {
  while (received_.find(text.data(), 0, text.size()) == std::string::npos && ReadSome()) {
  }
  const size_t at = received_.find(text.data(), 0, text.size());
  const std::string taken = received_.substr(0, at == std::string::npos ? at : at + text.size());
  received_.erase(0, taken.size());
  return taken;
}

std::string RawClient::ReadAll() {
  while (ReadSome()) {
  }
  return std::exchange(received_, "");
}

DoorTest::DoorTest(const Limits& limits) {
  DoorOptions options;
  options.limits = limits;
  options.is_host = [](const std::string& host) { return host == "lab.example"; };
  options.write_metrics = [this](const auto& done) { done(metrics_); };
  options.connect = [this](const access::Peer& peer, const auto& is_known) {
    int ends[2];
    TY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    connections_.Add(ends[0], peer, is_known);
    grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
    return ChannelOn(UniqueFd(ends[1]));
  };
  door_ = std::make_unique<Door>(std::move(options));
}

DoorTest::~DoorTest() {
  door_.reset();
}

RawClient DoorTest::Open(access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known) {
  int ends[2];
  TY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  door_->Take(UniqueFd(ends[0]), std::move(peer), std::move(is_known));
  return RawClient(UniqueFd(ends[1]));
}

RawClient DoorTest::OpenStranger() {
  access::Peer peer;
  peer.address = "203.0.113.7";
  return Open(std::move(peer), std::make_shared<std::atomic<bool>>(false));
}

std::string DoorTest::Post(const std::string& rpc, const std::string& json,
                           const std::string& headers) {
  return absl::StrCat("POST /trainyard.v1.", rpc,
                      " HTTP/1.1\r\nHost: lab.example\r\nContent-Type: application/json\r\n",
                      "Connection: close\r\nContent-Length: ", json.size(), "\r\n", headers, "\r\n",
                      json);
}

std::string DoorTest::Get(const std::string& target, const std::string& headers) {
  return absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: lab.example\r\nConnection: close\r\n",
                      headers, "\r\n");
}

std::string DoorTest::Ask(const std::string& user, const std::string& request) {
  RawClient client = OpenAs(user);
  client.Send(request);
  return client.ReadAll();
}

int DoorTest::StatusOf(const std::string& answer) {
  int status = 0;
  if (answer.rfind("HTTP/1.1 ", 0) != 0 || !absl::SimpleAtoi(answer.substr(9, 3), &status))
    return 0;
  return status;
}

nlohmann::json DoorTest::BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  if (end == std::string::npos) return nullptr;
  return nlohmann::json::parse(answer.substr(end + 4), nullptr, /*allow_exceptions=*/false);
}

}  // namespace trainyard::http
