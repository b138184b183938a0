// Runs the link to the scheduler: it registers, reports, and receives what should run, by long
// poll, without end. A server that is away or restarts costs nothing but the wait. The link core
// decides what is sent when; this is its thread and its calls.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/env.h"
#include "grpcpp/client_context.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/host_resources.h"
#include "worker/agent/link_core.h"
#include "worker/agent/report.h"
#include "worker/agent/session.h"

namespace trainyard::agent {

// Says who this worker is. It is sent at registration.
struct WorkerIdentity {
  std::string name;
  std::string uid;
  std::string hostname;
  std::string address;
  std::map<std::string, std::string> labels;
  std::string run_as_user = {};  // the only user whose jobs it runs; empty if there is no such
  HostResources host = {};       // what jobs may use of it
};

// Owns one thread. It is thread-safe, and borrows `stub`, `session`, `clock` and `rng`.
class SchedulerLink {
 public:
  using DesiredCallback = std::function<void(Desired)>;

  // `on_desired` is called on the link's thread.
  SchedulerLink(v1::AgentService::StubInterface& stub, WorkerIdentity identity,
                std::vector<Device> devices, Session& session, Clock& clock, Rng& rng,
                DesiredCallback on_desired);
  ~SchedulerLink();

  void Start();
  // Ends the thread. A call in flight is cancelled.
  void Stop();

  // Sets the newest report. An urgent one interrupts a sync that the server may hold.
  void SetReport(Report report, bool urgent);

 private:
  void Run();
  void Do(const LinkCore::AwaitReport&);
  void Do(const LinkCore::Pause& pause);
  void Do(const LinkCore::Register& due);
  void Do(const LinkCore::Sync& due);
  void HandleFailure(const absl::Status& status, const std::string& session);
  template <typename Call>
  absl::Status Invoke(absl::Duration deadline, bool is_interruptible, Call call);

  v1::AgentService::StubInterface& stub_;
  const WorkerIdentity identity_;
  Clock& clock_;
  const DesiredCallback on_desired_;
  std::string last_failure_;  // only the link's thread uses it

  absl::Mutex mutex_;
  LinkCore core_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;  // a report came since the last step
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool call_interruptible_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::agent
