// A store that speaks S3 well enough for our client, on 127.0.0.1. It checks signatures, keeps one
// bucket in memory, and fails as it is told. What real stores do is tried by `make s3`.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/mutex.h"
#include "common/s3/client.h"

namespace trainyard::testing {

class FakeS3 {
 public:
  enum class Fault {
    kNothing,        // the request is answered well, to count it
    kInternalError,  // 500
    kSlowDown,       // 503 with Retry-After
    kDenied,         // 403 AccessDenied
    kClose,          // the connection is closed before the request is done
    kLoseAnswer,     // the request is done, and the connection is closed
    kCut,            // half of the answer comes
    kDrip,           // the answer comes a byte at a time, slowly
    kHang,           // no answer comes until Wake, which closes the connection, or until the end
    kWrongEtag,      // the answer has another ETag than the object
    kWrongBytes,     // the answer has other bytes than the object
    kErrorInside,    // 200 with an error document, as AWS may answer to a completion
  };
  struct Options {
    s3::Conditions conditions = s3::Conditions::kHonoured;
    std::string region = "us-east-1";
  };

  FakeS3() : FakeS3(Options()) {}
  explicit FakeS3(Options options);
  ~FakeS3();
  FakeS3(const FakeS3&) = delete;
  FakeS3& operator=(const FakeS3&) = delete;

  std::string endpoint() const;
  // Returns options of a client that may do everything, and that hardly pauses between tries.
  s3::ClientOptions ClientOptions() const;

  // Lets the next `count` requests of a method whose key contains a text fail. An empty method or
  // text means all. Faults that were injected earlier come first.
  void Inject(Fault fault, int count = 1, std::string method = "", std::string key_part = "");
  // Whoever asks for the keys of a role gets this text with status 200.
  void AnswerRolesWith(std::string body);
  // No request hangs any more, now or later.
  void Wake();
  // Lists show what is there now, whatever comes or goes, until ThawLists.
  void FreezeLists();
  void ThawLists();
  // Changes the bucket as if somebody else had written.
  void Write(const std::string& key, const std::string& content);
  void Remove(const std::string& key);

  std::map<std::string, std::string> Objects() const;
  std::vector<std::string> Keys(const std::string& prefix = "") const;
  // Requests as they came: "PUT some/key?partNumber=1".
  std::vector<std::string> Requests() const;
  int CountRequests(const std::string& part) const;
  int OpenUploads() const;
  // The most requests that were answered at the same time.
  int ParallelMax() const;

 private:
  struct Request;
  struct Answer;
  struct Injected {
    Fault fault;
    int count;
    std::string method;
    std::string key_part;
  };

  void Serve();
  void ServeConnection(int connection);
  // Returns false if there is no request any more.
  bool ReadRequest(int connection, std::string& buffer, Request& request);
  Answer AnswerTo(const Request& request);
  std::optional<Answer> Refuse(const Request& request);
  Answer DoAssumeRole(const Request& request);
  Answer DoPut(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer DoGet(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer DoList(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer DoPost(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Fault> TakeFault(const Request& request);
  // Returns false if the connection is to be closed.
  bool Send(int connection, const Request& request, Answer answer, std::optional<Fault> fault);

  const Options options_;
  UniqueFd socket_;
  UniqueFd stop_;
  UniqueFd wake_;
  int port_ = 0;
  mutable Mutex mutex_;
  std::map<std::string, std::string> objects_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::map<std::string, std::string>> frozen_ ABSL_GUARDED_BY(mutex_);
  // The parts of uploads, by id.
  std::map<std::string, std::map<int, std::string>> uploads_ ABSL_GUARDED_BY(mutex_);
  int uploads_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<std::string> role_answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Injected> faults_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  int parallel_ ABSL_GUARDED_BY(mutex_) = 0;
  int parallel_max_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<std::thread> connections_;  // only the accepting thread adds, and the destructor joins
  std::thread thread_;
};

}  // namespace trainyard::testing
