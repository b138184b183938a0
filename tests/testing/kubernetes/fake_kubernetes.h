// Plays the API server of a Kubernetes, as far as providers use it: pods, Jobs and Secrets of one
// namespace, with labels, pages, dry runs and owners. It fails as it is told. The tests of
// tests/kubernetes do the same with a real one, so that it cannot be wrong unseen.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/testing/http_receiver.h"

namespace trainyard::testing {

class FakeKubernetes {
 public:
  // A fault meets the next call that it fits.
  struct Fault {
    std::string method;     // "" fits all
    std::string path;       // a part of the path
    int status = 0;         // in place of the true answer; -1: the connection ends; 0: it is kept
    std::string body = {};  // with `status`; empty for a Status with the message `told`
    std::string headers = {};              // further lines of the head
    bool is_after = false;                 // the call is carried out before
    bool is_cut = false;                   // the true answer ends in its middle
    std::function<void()> wait = nullptr;  // is called before the answer
  };

  FakeKubernetes();

  std::string url() const { return receiver_.Url(""); }
  static constexpr char kSpace[] = "pilots";
  // Only this token is accepted.
  void SetToken(const std::string& token);
  void Add(Fault fault);
  size_t faults_left();

  // Changes an object of "pods", "jobs" or "secrets" by a JSON merge patch. Returns false if it is
  // not there.
  bool Patch(const std::string& kind, const std::string& name, const std::string& patch);
  // Puts an object there, as somebody else would.
  void Put(const std::string& kind, const std::string& object);
  // Returns an object as JSON, or "".
  std::string Get(const std::string& kind, const std::string& name);
  std::vector<std::string> Names(const std::string& kind);
  // Takes an object away at once, and then all Secrets whose owners are gone.
  void Remove(const std::string& kind, const std::string& name);
  // Pods that are deleted stay until Remove takes them, as on a node that ends them.
  void KeepDeleted(bool does) ABSL_LOCKS_EXCLUDED(mutex_);
  void DeleteNamespace();
  // A page has at most so many entries, whatever is asked for.
  void SetPageSize(int entries);

  std::vector<HttpReceiver::Request> requests() const { return receiver_.requests(); }

 private:
  using Objects = std::map<std::string, std::string>;  // JSON by name

  HttpReceiver::Reply Answer(const HttpReceiver::Request& request);
  HttpReceiver::Reply Carry(const HttpReceiver::Request& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpReceiver::Reply Create(const std::string& kind, const std::string& query,
                             const std::string& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpReceiver::Reply List(const std::string& kind, const std::string& query)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HttpReceiver::Reply Delete(const std::string& kind, const std::string& name,
                             const std::string& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(const std::string& kind, const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_) = "token";
  std::map<std::string, Objects> objects_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  bool keeps_deleted_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_space_ ABSL_GUARDED_BY(mutex_) = true;
  int page_size_ ABSL_GUARDED_BY(mutex_) = 1000;
  int64_t uids_ ABSL_GUARDED_BY(mutex_) = 0;
  // Its thread uses what is above, so it ends first.
  HttpReceiver receiver_;
};

}  // namespace trainyard::testing
