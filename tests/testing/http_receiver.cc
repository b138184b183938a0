// Serves one connection after the other.
#include "tests/testing/http_receiver.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace trainyard::testing {
namespace {

// Reads the head and the body of a request.
HttpReceiver::Request ReadRequest(int connection) {
  HttpReceiver::Request request;
  std::string text;
  size_t head = std::string::npos;
  size_t length = 0;
  char buffer[4096];
  while (head == std::string::npos || text.size() < head + 4 + length) {
    const ssize_t got = read(connection, buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (head != std::string::npos) continue;
    head = text.find("\r\n\r\n");
    if (head == std::string::npos) continue;
    const std::vector<std::string> lines = absl::StrSplit(text.substr(0, head), "\r\n");
    const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
    if (words.size() > 1) request.path = words[1];
    request.method = words[0];
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
      request.headers[absl::AsciiStrToLower(field.first)] = field.second;
    }
    (void)absl::SimpleAtoi(request.headers["content-length"], &length);
  }
  if (head != std::string::npos) request.body = text.substr(head + 4);
  return request;
}

}  // namespace

HttpReceiver::HttpReceiver()
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), stop_(eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  TY_CHECK(bind(socket_.get(), generic, size) == 0 && listen(socket_.get(), 16) == 0);
  TY_CHECK(getsockname(socket_.get(), generic, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

HttpReceiver::~HttpReceiver() {
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

std::string HttpReceiver::Url(const std::string& path) const {
  return absl::StrCat("http://127.0.0.1:", port_, path);
}

void HttpReceiver::AnswerWith(std::vector<int> statuses) {
  const MutexLock lock(&mutex_);
  statuses_.assign(statuses.begin(), statuses.end());
}

void HttpReceiver::AnswerBy(std::function<Reply(const Request&)> answer) {
  const MutexLock lock(&mutex_);
  answer_ = std::move(answer);
}

bool HttpReceiver::WaitFor(size_t count, absl::Duration timeout) {
  const absl::Duration step = absl::Milliseconds(50);
  const MutexLock lock(&mutex_);
  for (absl::Duration left = timeout; requests_.size() < count; left -= step) {
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitWithTimeout(&mutex_, step);
  }
  return true;
}

std::vector<HttpReceiver::Request> HttpReceiver::requests() const {
  const MutexLock lock(&mutex_);
  return requests_;
}

void HttpReceiver::Serve() {
  while (true) {
    pollfd fds[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    (void)poll(fds, 2, -1);
    if (fds[1].revents != 0) return;
    const UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) Answer(connection.get());
  }
}

void HttpReceiver::Answer(int connection) {
  Request request = ReadRequest(connection);
  Reply reply;
  std::function<Reply(const Request&)> decide;
  {
    const MutexLock lock(&mutex_);
    decide = answer_;
    if (!statuses_.empty()) {
      reply.status = statuses_.front();
      statuses_.pop_front();
    }
  }
  if (decide) reply = decide(request);
  {
    // Whoever has the answer finds the request here.
    const MutexLock lock(&mutex_);
    requests_.push_back(std::move(request));
    changed_.SignalAll();
  }
  if (reply.status > 0) {
    const std::string answer = absl::StrCat(
        "HTTP/1.1 ", reply.status, " Told\r\nContent-Length: ", reply.body.size(),
        "\r\nConnection: close\r\n", reply.headers,
        reply.status == 302 ? absl::StrCat("Location: ", Url("/elsewhere"), "\r\n") : "", "\r\n",
        reply.is_cut ? reply.body.substr(0, reply.body.size() / 2) : reply.body);
    (void)!send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
  }
}

}  // namespace trainyard::testing
