// Runs the worker daemon, which makes what runs on this host match what the server wants. This is
// its thread: it drives the daemon core whenever a file changes, the server answers, an uploader
// makes progress, or a regular look is due, and it watches the GPUs.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/env.h"
#include "common/base/file_watch.h"
#include "common/base/files.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/checkpoint_fetcher.h"
#include "worker/agent/checkpoint_uploader.h"
#include "worker/agent/daemon_core.h"
#include "worker/agent/dataset_watch.h"
#include "worker/agent/device_inventory.h"
#include "worker/agent/device_watch.h"
#include "worker/agent/file_run_dirs.h"
#include "worker/agent/scheduler_link.h"
#include "worker/agent/session.h"
#include "worker/agent/stream_uploader.h"
#include "worker/agent/tunnel_host.h"

namespace trainyard::agent {

struct AgentOptions {
  HostSettings settings;
  WorkerIdentity identity;
  std::vector<Device> devices;
  // The time between two looks at the GPUs, and between two points of a device's metrics.
  absl::Duration device_look_interval = absl::Seconds(2);
  absl::Duration device_metrics_interval = absl::Seconds(10);
  // The time between two looks at the folder of data sets. If it is unset, the daemon tells no data
  // sets.
  std::optional<absl::Duration> dataset_look_interval = {};
};

// Owns the threads of the daemon. Stopping it leaves all jobs running: the next daemon on the same
// state directory adopts them. Borrows `stub`, `nvml` (may be null), `clock` and `rng`.
class Agent {
 public:
  Agent(AgentOptions options, v1::AgentService::StubInterface& stub, Nvml* nvml, Clock& clock,
        Rng& rng);
  ~Agent();

  // Adopts what runs, then works until Stop is called.
  void Start();
  void Stop();
  // Asks the server to let what runs here go on elsewhere, because the daemon is to end: it writes
  // checkpoints within this time, and stops. There is no way back.
  void Leave(absl::Duration within);
  // Returns true once the server has got all that this host had to send, and will give it nothing
  // more.
  bool has_left() const;
  // Returns true if the loop has made a turn since the last call, and wakes it for another one.
  bool IsAlive();

 private:
  void Loop();
  void Turn();
  // Passes on to the core what other threads have brought.
  void TakeNews();
  void SetTargets();
  // Sets the time of a file, by which a probe sees that the server answers this daemon.
  void NoteHeard();
  std::string HeardPath() const;
  // Serves the users who wait for a rank of this host.
  void ServeTunnels(const std::vector<WantedTunnel>& wanted);
  void SendReport(Report report);
  void LookAtDevices();
  // Ends attempts on devices that have failed, before their ranks hang for good.
  void StopRanksOfFailedDevices();
  void RecordDeviceMetrics();
  absl::Duration NextTurn() const;
  void Wake();

  const AgentOptions options_;
  Clock& clock_;
  Session session_;
  std::optional<FileWatch> watch_;
  UniqueFd wake_;  // an eventfd
  CodeCache code_;
  CheckpointFetcher fetcher_;
  FileRunDirs dirs_;
  DaemonCore core_;
  StreamUploader streams_;
  CheckpointUploader checkpoints_;
  TunnelHost tunnels_;
  SchedulerLink link_;
  std::optional<DatasetWatch> datasets_;

  // Only the loop's thread uses these.
  std::optional<Report> reported_;
  std::optional<DeviceWatch> gpus_;  // unset if the host has none
  absl::Duration devices_due_;
  absl::Duration heard_due_;
  std::map<AttemptId, absl::Duration> device_metrics_due_;
  bool gets_nothing_more_ = false;  // as the server's last answer says

  std::atomic<int64_t> turns_ = 0;
  int64_t turns_seen_ = -1;
  mutable absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration leave_within_ ABSL_GUARDED_BY(mutex_);  // 0 if the daemon is not to end
  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Desired> inbox_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trainyard::agent
