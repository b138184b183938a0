// Implements an HTTP server with just enough features for downloads that are resumed.
#include "tests/unit/client/fetch/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::fetch {

HttpServer::HttpServer(std::string content, Behaviour behaviour)
    : content_(std::move(content)), behaviour_(behaviour) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  TY_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  TY_CHECK(listen(listener_, 8) == 0);
  socklen_t size = sizeof(address);
  TY_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

HttpServer::~HttpServer() {
  is_stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

std::string HttpServer::url() const {
  return absl::StrCat("http://127.0.0.1:", port_, "/file");
}

void HttpServer::Serve() {
  while (!is_stopping_) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    Answer(connection);
    close(connection);
  }
}

void HttpServer::Answer(int connection) {
  std::string request;
  char buffer[4096];
  while (!absl::StrContains(request, "\r\n\r\n")) {
    const ssize_t got = read(connection, buffer, sizeof(buffer));
    if (got <= 0) return;
    request.append(buffer, static_cast<size_t>(got));
  }
  const auto send_all = [connection](const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t done = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (done <= 0) return;
      sent += static_cast<size_t>(done);
    }
  };
  if (!absl::StartsWith(request, "GET /file ") && !absl::StartsWith(request, "GET /file?")) {
    send_all("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return;
  }
  const size_t range = request.find("Range: bytes=");
  const size_t asked =
      range == std::string::npos
          ? 0
          : static_cast<size_t>(std::strtoull(request.c_str() + range + 13, nullptr, 10));
  starts_.push_back(static_cast<int64_t>(asked));
  if (static_cast<int>(starts_.size()) <= behaviour_.refuses) {
    send_all(absl::StrCat("HTTP/1.1 ", behaviour_.refuses_with,
                          " No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    return;
  }
  const bool changes = behaviour_.changes_after > 0 &&
                       static_cast<int>(starts_.size()) == behaviour_.changes_after + 1;
  if (changes) {
    std::reverse(content_.begin(), content_.end());
    etag_ = "\"2\"";
  }
  if (behaviour_.knows_ranges && asked > 0 && asked >= content_.size()) {
    send_all(
        "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return;
  }
  // A range of another version than the one that is asked for is answered with all of this one.
  const bool is_other = absl::StrContains(request, "If-Range: ") &&
                        !absl::StrContains(request, absl::StrCat("If-Range: ", etag_, "\r\n"));
  const size_t start = behaviour_.knows_ranges && !is_other ? asked : 0;
  const std::string body = content_.substr(start);
  std::string head =
      start > 0 ? absl::StrCat("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes ", start, "-",
                               content_.size() - 1, "/", content_.size(), "\r\n")
                : std::string("HTTP/1.1 200 OK\r\n");
  absl::StrAppend(&head, "ETag: ", etag_, "\r\nContent-Length: ", body.size(),
                  "\r\nConnection: close\r\n\r\n");
  const size_t length =
      behaviour_.cut_after > 0 ? std::min(body.size(), behaviour_.cut_after) : body.size();
  send_all(head + body.substr(0, length));
}

}  // namespace trainyard::fetch
