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
  };

  HttpServer(std::string content, Behaviour behaviour);
  ~HttpServer();

  // The file is /file; all others are missing.
  std::string url() const;
  // First byte that each request for the file asked for.
  std::vector<int64_t> starts() const { return starts_; }

 private:
  void Serve();
  void Answer(int connection);

  const std::string content_;
  const Behaviour behaviour_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::vector<int64_t> starts_;  // written by the thread, read when nothing is asked
  std::thread thread_;
};

}  // namespace trainyard::fetch
