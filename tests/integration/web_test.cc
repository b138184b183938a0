// Tests the page that the client serves to a browser of this machine.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kNobody = 65534;

// Sends one request to a port of this machine, and returns the answer.
std::string Ask(int port, const std::string& request) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {30, 0};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = recv(fd.get(), buffer, sizeof buffer, 0)) > 0) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

class Web : public ::testing::Test {
 protected:
  void SetUp() override {
    yard_.StartServer();
    Process::Options options;
    options.args = {Yard::Binary("trainyard"), "--server", yard_.address(), "web", "--no-open"};
    options.stdout_path = yard_.File("web.out");
    options.stderr_path = yard_.File("web.err");
    auto started = Process::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    client_ = *std::move(started);
    ASSERT_TRUE(WaitUntil([this] { return absl::EndsWith(Link(), "\n"); })) << client_->Err();
    absl::string_view rest = Link();
    std::string link(absl::StripSuffix(rest, "\n"));
    absl::string_view view = link;
    ASSERT_TRUE(absl::ConsumePrefix(&view, "http://127.0.0.1:")) << link;
    const size_t slash = view.find('/');
    ASSERT_TRUE(absl::SimpleAtoi(view.substr(0, slash), &port_));
    target_ = std::string(view.substr(slash));
  }

  std::string Link() { return ReadFile(yard_.File("web.out")).value_or(""); }

  std::string Get(const std::string& target, const std::string& headers = "") {
    return Ask(port_, absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: 127.0.0.1:", port_,
                                   "\r\nConnection: close\r\n", headers, "\r\n"));
  }

  // Follows the link, and returns the header with the cookie that it gives.
  std::string SignIn() {
    const std::string answer = Get(target_);
    const size_t begin = answer.find("Set-Cookie: ");
    if (begin == std::string::npos) return "";
    const std::string cookie = answer.substr(begin + 12, answer.find(';', begin) - begin - 12);
    return absl::StrCat("Cookie: ", cookie, "\r\n");
  }

  Yard yard_;
  std::unique_ptr<Process> client_;
  int port_ = 0;
  std::string target_;
};

TEST_F(Web, ABrowserHasTheRightsOfTheUserAlsoAfterARestartOfTheServer) {
  const std::string who = "/trainyard.v1.AccessService/WhoAmI";
  EXPECT_THAT(Get(who), HasSubstr("HTTP/1.1 401")) << "nobody has followed the link yet";
  const std::string cookie = SignIn();
  ASSERT_NE(cookie, "");
  EXPECT_EQ(SignIn(), "") << "the link is good once";
  EXPECT_THAT(Get(who, cookie), AllOf(HasSubstr("HTTP/1.1 200"), HasSubstr("\"ROLE_ADMIN\"")));
  EXPECT_THAT(Get("/jobs/7", cookie + "Accept: text/html\r\n"),
              AllOf(HasSubstr("HTTP/1.1 200"), HasSubstr("<!doctype html>"),
                    HasSubstr("Content-Security-Policy: ")));

  yard_.KillServer();
  EXPECT_THAT(Get(who, cookie), HasSubstr("\"unavailable\""));
  yard_.StartServer();
  EXPECT_TRUE(WaitUntil([&] { return absl::StrContains(Get(who, cookie), "\"ROLE_ADMIN\""); }));

  client_->Signal(SIGINT);
  EXPECT_TRUE(client_->Wait(absl::Seconds(30)).ok());
}

// The browser stays, as one does that the user closes later, and must not keep the page waiting.
TEST_F(Web, TheUsersBrowserIsStartedWithTheLink) {
  const std::string browser = yard_.File("browser");
  ASSERT_TRUE(
      WriteFileAtomically(browser, absl::StrCat("#!/bin/sh\necho \"$1\" > ", yard_.File("opened"),
                                                ".new\nmv ", yard_.File("opened"), ".new ",
                                                yard_.File("opened"), "\nexec sleep 20\n"))
          .ok());
  ASSERT_EQ(chmod(browser.c_str(), 0700), 0);
  Process::Options options;
  options.args = {Yard::Binary("trainyard"), "--server", yard_.address(), "web"};
  options.environment = {{"BROWSER", browser}};
  options.stdout_path = yard_.File("second.out");
  options.stderr_path = yard_.File("second.err");
  auto client = Process::Start(options);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(WaitUntil([this] { return ReadFile(yard_.File("opened")).ok(); }));
  const std::string opened = ReadFile(yard_.File("opened")).value_or("");
  EXPECT_TRUE(WaitUntil([&] { return ReadFile(yard_.File("second.out")).value_or("") == opened; }));
  absl::string_view rest = opened;
  ASSERT_TRUE(absl::ConsumePrefix(&rest, "http://127.0.0.1:")) << opened;
  ASSERT_TRUE(absl::SimpleAtoi(rest.substr(0, rest.find('/')), &port_));
  target_ = std::string(absl::StripSuffix(rest.substr(rest.find('/')), "\n"));
  EXPECT_NE(SignIn(), "") << "the page is served while the browser runs";
}

TEST_F(Web, OtherUsersOfTheMachineGetNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Process::Options options;
  options.args = {
      "/usr/bin/python3", "-c",
      absl::StrCat("import socket\ns = socket.create_connection(('127.0.0.1', ", port_,
                   "), 20)\ns.settimeout(20)\ntry:\n  s.sendall(b'GET ", target_,
                   " HTTP/1.1\\r\\nHost: 127.0.0.1:", port_,
                   "\\r\\n\\r\\n')\n  print(s.recv(1000))\nexcept OSError:\n  print(b'')\n")};
  options.stdout_path = yard_.File("other.out");
  options.stderr_path = yard_.File("other.err");
  options.uid = kNobody;
  auto other = Process::Start(options);
  ASSERT_TRUE(other.ok()) << other.status();
  const auto result = (*other)->Wait(absl::Seconds(60));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "b''\n") << result->err;
  EXPECT_NE(SignIn(), "") << "the code was not used up";
}

}  // namespace
}  // namespace trainyard::testing
