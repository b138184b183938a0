// A small HTTP server for tests: it remembers what was posted, and answers as it is told.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/mutex.h"

namespace trainyard::testing {

class HttpReceiver {
 public:
  struct Request {
    std::string method;
    std::string path;
    std::map<std::string, std::string> headers;  // by name in lower case
    std::string body;
  };

  // Listens on a free port of 127.0.0.1.
  HttpReceiver();
  ~HttpReceiver();
  HttpReceiver(const HttpReceiver&) = delete;
  HttpReceiver& operator=(const HttpReceiver&) = delete;

  int port() const { return port_; }
  std::string Url(const std::string& path = "/hook") const;
  // Answers the next requests with these numbers, and all after them with 200. -1 closes the
  // connection without an answer, and 302 names another place.
  void AnswerWith(std::vector<int> statuses);
  struct Reply {
    int status = 200;  // as in AnswerWith
    std::string body = {};
    std::string headers = {};  // further lines of the head, each with its end
    bool is_cut = false;       // the connection ends in the middle of the body
  };
  // Answers each further request in this way. The function may take its time, and the next request
  // waits then.
  void AnswerBy(std::function<Reply(const Request&)> answer);
  // Waits until there are so many requests. Returns false if they do not come in time.
  bool WaitFor(size_t count, absl::Duration timeout = absl::Seconds(30));
  std::vector<Request> requests() const;

 private:
  void Serve();
  void Answer(int connection);

  UniqueFd socket_;
  UniqueFd stop_;
  int port_ = 0;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<int> statuses_ ABSL_GUARDED_BY(mutex_);
  std::function<Reply(const Request&)> answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trainyard::testing
