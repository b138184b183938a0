// Reports jobs, their metrics and their logs as they change, even across restarts of the server.
// Each of these streams is read by a thread of its own, and their updates are merged into one
// queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/link/server_link.h"
#include "common/base/env.h"
#include "grpcpp/client_context.h"

namespace trainyard::link {

// A server that is away for longer than this does not come back by itself.
inline constexpr absl::Duration kReconnectFor = absl::Minutes(2);

// These are the updates that a follower reports.
struct Points {
  std::vector<v1::MetricPoint> points;
};
// The connection was lost (`is_back` false) or found again.
struct Connection {
  bool is_back = false;
};
// The stream of metrics came to its end: the job has ended, and all its points have arrived.
struct MetricsEnd {};
// The stream of logs came to its end: the job has ended, and all its text has arrived.
struct LogsEnd {};
// Nothing more comes, for this reason.
struct End {
  absl::Status status;
};
using Update =
    std::variant<v1::Job, Points, v1::TailLogsResponse, Connection, MetricsEnd, LogsEnd, End>;

// Follows jobs. It borrows the link, the clock and the random numbers.
class Follower {
 public:
  struct Options {
    std::vector<std::string> names = {};  // empty means all jobs
    // The metrics to stream for the one job in `names`. If it is empty, no metrics are streamed.
    std::string metrics_of = {};
    // The job in `names` whose logs are streamed. If it is empty, no logs are.
    std::string logs_of = {};
    // The attempt and the offset from which the logs are wanted, if the attempt is still that one.
    // A later attempt is read from its beginning. After a lost connection, text of those ranks
    // comes again that were ahead of the others.
    int logs_attempt = 0;
    int64_t logs_offset = 0;
    absl::Duration reconnect_for = kReconnectFor;
  };

  Follower(ServerLink& link, Clock& clock, Rng& rng, Options options);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Returns the next update, or nothing if none comes within `timeout`.
  std::optional<Update> Next(absl::Duration timeout);

 private:
  // Makes one contact with the server: reads until the stream ends, and sets `got_any` with the
  // first message.
  using Contact = std::function<grpc::Status(grpc::ClientContext&, bool& got_any)>;

  void WatchJobs();
  void WatchMetrics();
  void WatchLogs();
  // Repeats the contact when the connection is lost. Returns OK if the server ended the stream.
  // `on_loss` is called once for each loss.
  absl::Status Keep(const Contact& contact, bool ends_by_itself,
                    const std::function<void()>& on_loss);
  // A loss breaks all streams, and is told once: when the stream of jobs breaks. The server is told
  // to be back with the first message of any stream that was broken, before that message.
  void TellConnection(bool is_back);
  void Post(Update update);
  // Waits until the reader of the updates has caught up, so that a flood of text stays where it is.
  bool WaitForRoom();
  bool Pause(absl::Duration duration);
  bool stopping();

  ServerLink& link_;
  Clock& clock_;
  Rng& rng_;
  const Options options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable taken_;
  bool stopping_ = false;
  bool is_told_lost_ = false;
  std::deque<Update> updates_;
  std::vector<grpc::ClientContext*> contexts_;

  std::vector<std::thread> threads_;
};

}  // namespace trainyard::link
