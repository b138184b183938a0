#include "common/curl/caller.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"

namespace trainyard::curl {
namespace {

using ::testing::HasSubstr;

// Sends the same bytes to whoever asks for anything, and then waits until its end.
class RawServer {
 public:
  explicit RawServer(std::string answer)
      : answer_(std::move(answer)),
        socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        stop_(eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    TY_CHECK(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    TY_CHECK(listen(socket_.get(), 8) == 0);
    socklen_t size = sizeof(address);
    TY_CHECK(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~RawServer() {
    const uint64_t one = 1;
    TY_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  std::string Url(const std::string& scheme = "http") const {
    return absl::StrCat(scheme, "://127.0.0.1:", port_, "/");
  }

 private:
  // Returns false once the server ends.
  bool WaitFor(int fd) const {
    pollfd waits[] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(waits, 2, -1);
    return waits[1].revents == 0;
  }
  void Serve() {
    while (WaitFor(socket_.get())) {
      const UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string request;
      char block[4096];
      while (!absl::StrContains(request, "\r\n\r\n") && WaitFor(connection.get())) {
        const ssize_t got = read(connection.get(), block, sizeof block);
        if (got <= 0) break;
        request.append(block, static_cast<size_t>(got));
      }
      (void)!send(connection.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      // A caller that goes away makes it readable.
      WaitFor(connection.get());
    }
  }

  const std::string answer_;
  const UniqueFd socket_;
  const UniqueFd stop_;
  int port_ = 0;
  std::thread thread_;
};

std::string AnswerOf(const std::string& body, const std::string& headers = "") {
  return absl::StrCat("HTTP/1.1 200 OK\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n",
                      body);
}

TEST(Caller, ABodyPastTheLimitIsRefusedOrCut) {
  const RawServer server(AnswerOf(std::string(1000, 'x')));
  Caller caller;
  Request request;
  request.url = server.Url();
  request.body_bytes_max = 1000;
  auto answer = caller.Call(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body.size(), size_t{1000});

  request.body_bytes_max = 999;
  const absl::Status status = caller.Call(request).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("over 999 bytes"));

  request.cuts_body = true;
  answer = caller.Call(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
  EXPECT_LE(answer->body.size(), size_t{999});
}

TEST(Caller, HeadersPastTheLimitAreNotKept) {
  std::string headers = "First: 1\r\n";
  for (int i = 0; i < 500; ++i) absl::StrAppend(&headers, "X-", i, ": y\r\n");
  const RawServer server(AnswerOf("body", headers));
  Caller caller;
  Request request;
  request.url = server.Url();
  const auto answer = caller.Call(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->headers.size(), size_t{200});
  EXPECT_EQ(HeaderOf(*answer, "first"), "1");
  EXPECT_EQ(HeaderOf(*answer, "x-499"), "");
  EXPECT_EQ(answer->body, "body");
}

TEST(Caller, AServerThatFallsSilentIsGivenUp) {
  const RawServer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  Caller caller;
  Request request;
  request.url = server.Url();
  request.stall_timeout = absl::Milliseconds(1);  // it is rounded up to a second
  const absl::Status status = caller.Call(request).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST(Caller, ACallThatIsStoppedEnds) {
  const RawServer server("");
  Caller caller;
  std::atomic<bool> is_stopping = false;
  Request request;
  request.url = server.Url();
  request.is_stopping = &is_stopping;
  absl::Status status;
  std::thread call([&] { status = caller.Call(request).status(); });
  is_stopping = true;
  call.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(Caller, AuthoritiesThatCannotBeReadAreNamedAsTheCause) {
  const RawServer server("");
  Caller caller;
  Request request;
  request.url = server.Url("https");
  request.authorities_file = "/nowhere/authorities.pem";
  const absl::Status status = caller.Call(request).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/authorities.pem"));
}

TEST(Caller, WhatIsNoUrlIsAMistakeOfTheCaller) {
  Caller caller;
  for (const char* url : {"file:///etc/passwd", "ftp://127.0.0.1/", "http://"}) {
    Request request;
    request.url = url;
    EXPECT_TRUE(absl::IsInvalidArgument(caller.Call(request).status())) << url;
  }
}

}  // namespace
}  // namespace trainyard::curl
