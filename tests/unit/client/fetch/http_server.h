// An HTTP server for tests: one file, one connection at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace trainyard::fetch {

class HttpServer {
 public:
  struct Behaviour {
    bool knows_ranges = true;
    // Each answer sends at most this many bytes of the file; 0 means all.
    size_t cut_after = 0;
    // The first requests are answered with this status.
    int refuses_with = 0;
    int refuses = 0;
    // After so many answers the file is another one; 0 means never.
    int changes_after = 0;
  };

  HttpServer(std::string content, Behaviour behaviour);
  ~HttpServer();

  // The file is /file; all others are missing.
  std::string url() const;
  // First byte that each request for the file asked for.
  std::vector<int64_t> starts() const { return starts_; }
  // The file as it is now.
  std::string content() const { return content_; }

 private:
  void Serve();
  void Answer(int connection);

  std::string content_;  // changed by the thread, read when nothing is asked
  std::string etag_ = "\"1\"";
  const Behaviour behaviour_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::vector<int64_t> starts_;  // written by the thread, read when nothing is asked
  std::thread thread_;
};

}  // namespace trainyard::fetch
