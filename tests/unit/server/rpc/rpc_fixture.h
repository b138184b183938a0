// Runs all services in this process, over stores in memory, with a clock that a test moves. The
// test also makes the calls of a worker.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/status.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/access_service.h"
#include "server/rpc/agent_service.h"
#include "server/rpc/bundle_service.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/code_service.h"
#include "server/rpc/fleet_service.h"
#include "server/rpc/job_service.h"
#include "server/rpc/notify_service.h"
#include "server/rpc/provider_service.h"
#include "server/rpc/secret_service.h"
#include "server/rpc/sharing_service.h"
#include "server/rpc/spec_service.h"
#include "server/rpc/streams.h"
#include "server/rpc/sweep_service.h"
#include "server/rpc/tunnel_service.h"
#include "server/store/memory_access_store.h"
#include "server/store/memory_metrics_store.h"
#include "server/store/memory_store.h"
#include "server/sweeps/keeper.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::rpc {

// A store whose queries a test can hold up.
class HeldMetricsStore : public store::MemoryMetricsStore {
 public:
  absl::StatusOr<store::MetricSeries> Query(JobId job, const std::vector<std::string>& names,
                                            const store::PointChoice& choice) override {
    if (before_query) before_query();
    return MemoryMetricsStore::Query(job, names, choice);
  }

  std::function<void()> before_query;
};

class RpcTest : public ::testing::Test {
 protected:
  RpcTest();
  ~RpcTest() override;

  // Makes a context with a deadline, so that a bug fails the test instead of blocking it. The stubs
  // of the fixture call as root, who acts for `user` if one is given.
  std::unique_ptr<grpc::ClientContext> Context(const std::string& user = "anna");
  // Connects as somebody else. `descriptor` gets that of the server's end.
  std::shared_ptr<grpc::Channel> Connect(access::Peer peer, int* descriptor = nullptr);
  // A user of this host, with a role that the system gives.
  static access::Peer User(const std::string& name, access::Role role = access::Role::kSubmitter);

  static v1::JobSpec Spec(const std::string& name);
  v1::Job CreateJob(const std::string& name);
  v1::Job GetJob(const std::string& name);

  // The worker lab-1, with two devices.
  void Register(const std::string& type = "cpu", bool bf16 = false);
  v1::SyncWorkerResponse Sync(std::vector<v1::ObservedAttempt> observed,
                              int64_t desired_revision = 0);
  static v1::ObservedAttempt Observed(const v1::DesiredAttempt& desired, v1::ObservedState state);
  // The only desired attempt, reported as running.
  v1::DesiredAttempt StartRunning();
  // Reports the end of the attempt with everything delivered.
  void Succeed(const v1::DesiredAttempt& attempt);
  absl::StatusOr<int64_t> AppendLog(const v1::DesiredAttempt& attempt, int64_t offset,
                                    const std::string& data,
                                    v1::RankStream stream = v1::RANK_STREAM_UNSPECIFIED);
  absl::StatusOr<int64_t> AppendMetrics(const v1::DesiredAttempt& attempt, int64_t offset,
                                        const std::vector<int64_t>& steps);

  testing::TempDir dir_;
  testing::ManualClock clock_;
  store::MemoryStore store_;
  store::MemoryAccessStore access_store_;
  access::Directory directory_;
  runtime::Connections connections_{clock_};
  HeldMetricsStore metrics_;
  std::unique_ptr<runtime::BlobStore> blobs_;
  std::unique_ptr<runtime::CodeStore> code_;
  runtime::LogStore logs_{dir_.File("logs")};
  std::unique_ptr<store::RemarkStore> remarks_;
  runtime::Notifier notifier_;
  runtime::Board board_{notifier_};
  Streams open_streams_;
  runtime::Executor executor_;
  runtime::Executor metric_reads_{store::kMetricReadersMax};
  runtime::Executor metric_writes_{1};
  std::unique_ptr<store::SecretStore> secrets_;
  std::unique_ptr<store::NotifyStore> targets_;
  std::unique_ptr<store::SpecStore> specs_;
  std::unique_ptr<notify::Courier> courier_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<runtime::CheckpointVerifier> verifier_;
  std::unique_ptr<runtime::AuditLog> audit_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<store::SweepStore> sweep_store_;
  std::unique_ptr<sweeps::Keeper> sweeps_;
  std::unique_ptr<JobServiceImpl> job_service_;
  std::unique_ptr<FleetServiceImpl> fleet_service_;
  std::unique_ptr<SharingServiceImpl> sharing_service_;
  std::unique_ptr<CheckpointServiceImpl> checkpoint_service_;
  std::unique_ptr<CodeServiceImpl> code_service_;
  std::unique_ptr<BundleServiceImpl> bundle_service_;
  std::unique_ptr<AgentServiceImpl> agent_service_;
  std::unique_ptr<AccessServiceImpl> access_service_;
  std::unique_ptr<SecretServiceImpl> secret_service_;
  std::unique_ptr<SpecServiceImpl> spec_service_;
  std::unique_ptr<SweepServiceImpl> sweep_service_;
  std::unique_ptr<ProviderServiceImpl> provider_service_;
  std::unique_ptr<NotifyServiceImpl> notify_service_;
  std::unique_ptr<TunnelServiceImpl> tunnel_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::FleetService::Stub> fleet_;
  std::unique_ptr<v1::SharingService::Stub> sharing_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
  std::unique_ptr<v1::CodeService::Stub> code_calls_;
  std::unique_ptr<v1::BundleService::Stub> bundles_;
  std::unique_ptr<v1::AgentService::Stub> agents_;
  std::unique_ptr<v1::AccessService::Stub> access_;
  std::string session_;
  int64_t sequence_ = 0;
};

}  // namespace trainyard::rpc
