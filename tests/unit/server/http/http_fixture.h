// Gives tests the services with the HTTP door before them, and clients that send bytes as they
// like.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "server/http/door.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::http {

// A client with a socket. What it reads and waits for has a limit, so a bug fails the test.
class RawClient {
 public:
  explicit RawClient(UniqueFd socket) : socket_(std::move(socket)) {}

  void Send(absl::string_view bytes);
  // Reads until `text` has come, and returns all that has come since the last call.
  std::string ReadTo(absl::string_view text);
  // Reads until the other end closes, and returns all that has come.
  std::string ReadAll();
  void Close() { socket_ = UniqueFd(); }
  int socket() const { return socket_.get(); }

 private:
  bool ReadSome();

  UniqueFd socket_;
  std::string received_;
};

class DoorTest : public rpc::RpcTest {
 protected:
  explicit DoorTest(const Limits& limits = {});
  ~DoorTest() override;

  RawClient Open(access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known = nullptr);
  RawClient OpenAs(const std::string& user, access::Role role = access::Role::kSubmitter) {
    return Open(User(user, role));
  }
  // A client of another host, which nobody knows.
  RawClient OpenStranger();

  // Returns the text of a request. The connection ends after its answer.
  static std::string Post(const std::string& rpc, const std::string& json,
                          const std::string& headers = "");
  static std::string Get(const std::string& target, const std::string& headers = "");
  // Sends one request, and returns the answer.
  std::string Ask(const std::string& user, const std::string& request);
  static int StatusOf(const std::string& answer);
  static nlohmann::json BodyOf(const std::string& answer);

  // Is answered to GET /metrics.
  absl::StatusOr<std::string> metrics_ = "test_metric 1\n";
  std::unique_ptr<Door> door_;
};

}  // namespace trainyard::http
