// The line to the scheduler: registers, reports, and hears what should be, by long poll, for ever.
// A server that is away or starts anew costs nothing but the wait.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/backoff.h"
#include "common/base/env.h"
#include "grpcpp/client_context.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/report.h"
#include "worker/agent/session.h"

namespace trainyard::agent {

// Who this worker is; sent at registration.
struct WorkerIdentity {
  std::string name;
  std::string uid;
  std::string hostname;
  std::string address;
  std::map<std::string, std::string> labels;
};

// Owns one thread. Thread-safe. Borrows all of its arguments.
class SchedulerLink {
 public:
  using DesiredCallback = std::function<void(Desired)>;

  // `on_desired` is called on the link's thread. The link then waits for a report that has acted
  // upon this revision before it syncs again, so that the server never takes an older report for
  // the answer to a newer order.
  SchedulerLink(v1::AgentService::StubInterface& stub, WorkerIdentity identity,
                std::vector<Device> devices, Session& session, Clock& clock, Rng& rng,
                DesiredCallback on_desired);
  ~SchedulerLink();

  void Start();
  // Ends the thread; a call in flight is cancelled.
  void Stop();

  // The newest report. An urgent one interrupts the long poll that is under way.
  void SetReport(const Report& report, bool urgent);

 private:
  void Run();
  // Both return false after a failure that calls for a pause.
  bool Register();
  bool Sync();
  std::vector<Device> CurrentDevices();
  void FillRequest(v1::SyncWorkerRequest& request);
  void HandleFailure(const absl::Status& status, const std::string& session);
  void WaitForReport(int64_t serial);
  void Pause(absl::Duration duration);
  template <typename Call>
  absl::Status Invoke(absl::Duration deadline, Call call);

  v1::AgentService::StubInterface& stub_;
  const WorkerIdentity identity_;
  const std::vector<Device> devices_;
  Session& session_;
  Clock& clock_;
  const DesiredCallback on_desired_;
  // Of the link's thread only.
  Backoff backoff_;
  absl::Duration lease_duration_ = absl::Seconds(15);
  absl::Duration sync_interval_ = absl::Seconds(5);
  std::optional<Report> sent_;
  int64_t sequence_ = 0;
  int64_t serial_ = 0;
  bool heard_ = false;  // an answer in this session
  std::string last_failure_;

  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Report> report_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool call_interruptible_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::agent
