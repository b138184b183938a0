// A server for workers, in this process: it keeps what it receives, and gives the orders that a
// test sets. It is strict about offsets, like the real one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::agent {

// `points` and `metric_offsets` identify the device of a rank by this number.
constexpr int DeviceStreamOf(int rank) {
  return -1 - rank;
}

// The state of the server, which survives restarts of the service. It is thread-safe through
// `mutex`.
struct FakeServerState {
  absl::Mutex mutex;
  std::map<std::pair<std::string, int>, std::string> logs ABSL_GUARDED_BY(mutex);
  std::map<std::pair<std::string, int>, std::string> traces ABSL_GUARDED_BY(mutex);
  std::map<std::pair<std::string, int>, std::vector<v1::MetricPoint>> points ABSL_GUARDED_BY(mutex);
  std::map<std::pair<std::string, int>, int64_t> metric_offsets ABSL_GUARDED_BY(mutex);
  // The files by step and name, and the steps that were committed.
  std::map<std::pair<int64_t, std::string>, std::string> files ABSL_GUARDED_BY(mutex);
  std::map<int64_t, int> commits ABSL_GUARDED_BY(mutex);
  std::map<std::pair<int64_t, std::string>, std::string> hashes ABSL_GUARDED_BY(mutex);
  v1::CommitCheckpointRequest committed ABSL_GUARDED_BY(mutex);  // the last one
  // The code of each job, in the pieces in which it is sent, with a pause after each.
  std::map<std::string, std::vector<std::string>> code ABSL_GUARDED_BY(mutex);
  absl::Duration code_pause ABSL_GUARDED_BY(mutex);
  // The damage that the server finds when it looks at its own files, and how often it was asked to.
  std::string damage ABSL_GUARDED_BY(mutex);
  int verifications ABSL_GUARDED_BY(mutex) = 0;
  std::vector<v1::ObservedAttempt> observed ABSL_GUARDED_BY(mutex);  // of the last report
  std::vector<v1::Device> devices ABSL_GUARDED_BY(mutex);            // of the last report
  google::protobuf::Duration leave_within ABSL_GUARDED_BY(mutex);    // of the last report
  std::map<std::string, v1::DesiredAttempt> desired ABSL_GUARDED_BY(mutex);
  int64_t revision ABSL_GUARDED_BY(mutex) = 1;
  int registrations ABSL_GUARDED_BY(mutex) = 0;
  v1::RegisterWorkerRequest registered ABSL_GUARDED_BY(mutex);  // the last one
  std::string session ABSL_GUARDED_BY(mutex);
  int64_t fencing_token ABSL_GUARDED_BY(mutex) = 7;  // the only one that streams may carry
  // Faults: this many of the next calls fail, and chunks are accepted in pieces of at most this
  // many bytes.
  int unavailable ABSL_GUARDED_BY(mutex) = 0;
  int busy ABSL_GUARDED_BY(mutex) = 0;  // this many fetches are refused
  int64_t take_at_most ABSL_GUARDED_BY(mutex) = 1 << 30;
  int64_t calls ABSL_GUARDED_BY(mutex) = 0;
  // A log with this many bytes is full.
  size_t log_bytes_max ABSL_GUARDED_BY(mutex) = 1 << 30;
  std::function<void()> on_call ABSL_GUARDED_BY(mutex);  // before each is answered

  // Waits until `condition` holds, for 30 s at most.
  bool Wait(const std::function<bool()>& condition);
  void Want(const v1::DesiredAttempt& attempt);
};

// Listens on a Unix socket while it lives.
class FakeAgentServer {
 public:
  FakeAgentServer(FakeServerState& state, const std::string& socket);
  ~FakeAgentServer();

 private:
  class Service;
  FakeServerState& state_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainyard::agent
