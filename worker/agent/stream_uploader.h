// Sends logs, timelines and metrics of all attempts to the server as they grow. A cursor knows how
// far each of them is on the server (stream_cursor.h).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/backoff.h"
#include "common/base/env.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/cancel_token.h"
#include "worker/agent/session.h"
#include "worker/agent/stream_cursor.h"
#include "worker/agent/upload_target.h"

namespace trainyard::agent {

// Owns one thread. It is thread-safe, and borrows all of its arguments.
class StreamUploader {
 public:
  struct Progress {
    // True if the attempt has exited, and the server has every byte and every whole line, or wants
    // none.
    bool done = false;
    // The last values of train.* and test.* metrics of the lowest rank, as far as they were read.
    std::map<std::string, double> metrics;
  };

  // `on_done` is called on the uploader's thread when an attempt becomes done.
  StreamUploader(v1::AgentService::StubInterface& stub, Session& session, Rng& rng,
                 std::function<void()> on_done);
  ~StreamUploader();

  void Start();
  void Stop();

  // Sets all attempts whose streams may be missing on the server, and forgets all others.
  void SetTargets(std::vector<UploadTarget> targets);
  Progress ProgressOf(AttemptId id) const;

 private:
  enum class Kind { kLog, kTrace, kEnvironment, kMetrics, kDeviceMetrics };
  struct Stream {
    StreamCursor cursor;
    bool is_warned = false;       // true if a line or a file that is no good was logged
    bool is_full = false;         // true if the server has as much of it as it keeps
    std::set<std::string> names;  // of metrics that were sent
  };
  static absl::string_view KindName(Kind kind);
  using StreamKey = std::pair<int, Kind>;
  void Run();
  void TakeSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns true if there is more to do at once. Sets `healthy` to false after a failure that calls
  // for a pause.
  bool PumpAttempt(const UploadTarget& target, bool& healthy);
  // Returns the file of a log, a trace or an environment.
  static std::string PathOf(const UploadTarget& target, StreamKey key);
  static void CutOff(const std::string& path);
  // Returns false if the stream has too many metrics for another one.
  static bool TakeName(Stream& stream, const std::string& name);
  StreamCursor::Next Pump(const UploadTarget& target, StreamKey key, Stream& stream);
  // Sends bytes. `key` is that of one of these files.
  absl::StatusOr<int64_t> SendBytes(const UploadTarget& target, StreamKey key, Stream& stream,
                                    bool& at_end);
  // Sends metrics. `key` is that of metrics.jsonl or device_metrics.jsonl.
  absl::StatusOr<int64_t> SendMetrics(const UploadTarget& target, StreamKey key, Stream& stream,
                                      bool& at_end);
  static void WarnOfUnreadable(Stream& stream, const absl::Status& status);
  void WarnOfRefusal(const UploadTarget& target, StreamKey key, const absl::Status& status);

  // Makes one call, which Stop can cancel. Returns the offset at which to continue.
  template <typename Request, typename Call>
  absl::StatusOr<int64_t> Send(const UploadTarget& target, int rank, const Stream& stream,
                               Request& request, Call call);

  v1::AgentService::StubInterface& stub_;
  Session& session_;
  const std::function<void()> on_done_;
  CancelToken token_;
  // Only the uploader's thread uses these.
  Backoff backoff_;
  std::string known_session_;
  std::map<AttemptId, std::map<StreamKey, Stream>> streams_;

  mutable absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<UploadTarget> targets_ ABSL_GUARDED_BY(mutex_);
  std::map<AttemptId, Progress> progress_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trainyard::agent
