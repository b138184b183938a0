// Runs the server's services in this process, over stores in memory: handlers are called as gRPC
// would, without a socket and without its threads.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/base/env.h"
#include "grpcpp/grpcpp.h"
#include "server/provision/cluster.h"
#include "server/provision/keeper.h"
#include "server/provision/provider_store.h"
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
#include "server/store/memory_access_store.h"
#include "server/store/memory_metrics_store.h"
#include "server/store/memory_store.h"
#include "server/store/sqlite/sweep_store.h"
#include "server/sweeps/keeper.h"
#include "tests/fuzz/unary_call.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::fuzz {

// The memory of a service besides that of its input: the tables of a server, and an answer that may
// show every record that the server has, each with a whole spec.
inline constexpr int64_t kServiceBytes = int64_t{16} << 20;

class Service {
 public:
  Service();
  ~Service();

  // Ends the runtime, and starts another one on what is stored. Sessions are lost.
  void Restart();

  // A unary method, with its service, as in "JobService/GetJob".
  struct Method {
    const char* name;
    grpc::Status (*call)(Service& service, absl::string_view request);
  };
  static const std::vector<Method>& UnaryMethods();
  // Calls the unary method `number` (modulo their count) with the bytes of a request.
  grpc::Status CallUnary(size_t number, absl::string_view request);
  // Calls a streaming method likewise, reads some messages, and cancels it.
  grpc::Status CallStream(size_t number, absl::string_view request);

  rpc::JobServiceImpl& jobs() { return *jobs_; }
  rpc::FleetServiceImpl& fleet() { return *fleet_; }
  rpc::SharingServiceImpl& sharing() { return *sharing_; }
  rpc::AgentServiceImpl& agents() { return *agents_; }
  testing::ManualClock& clock() { return clock_; }
  // Returns the state of the yard, when all of it is committed.
  core::Snapshot Snapshot();

  static v1::JobSpec Spec(const std::string& name);
  // Registers worker lab-1 with two devices, and returns its session.
  std::string Register();

 private:
  // Sessions and identifiers are the same in each run, so that an input may name them.
  class CountingRng : public Rng {
   public:
    uint64_t Next() override { return next_ += 0x9e3779b97f4a7c15; }

   private:
    std::atomic<uint64_t> next_ = 0;
  };

  static testing::TempDir& Folder();
  void Start();
  void Stop();

  testing::ManualClock clock_;
  CountingRng rng_;
  store::MemoryStore store_;
  store::MemoryMetricsStore metrics_;
  std::unique_ptr<runtime::BlobStore> blobs_;
  std::unique_ptr<runtime::CodeStore> code_;
  runtime::LogStore logs_;
  std::unique_ptr<store::SecretStore> secret_store_;
  std::unique_ptr<store::NotifyStore> target_store_;
  std::unique_ptr<store::SpecStore> spec_store_;
  std::unique_ptr<store::RemarkStore> remark_store_;
  std::unique_ptr<store::SweepStore> sweep_store_;
  std::unique_ptr<provision::ProviderStore> provider_store_;
  runtime::Notifier notifier_;
  store::MemoryAccessStore access_store_;
  access::Directory directory_;
  runtime::Connections connections_{clock_};
  // A restart makes all members from here on anew.
  std::unique_ptr<runtime::Board> board_;
  std::unique_ptr<rpc::Streams> streams_;
  std::unique_ptr<runtime::Executor> executor_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<runtime::CheckpointVerifier> verifier_;
  std::unique_ptr<runtime::AuditLog> audit_;
  std::unique_ptr<rpc::Services> services_;
  std::unique_ptr<notify::Courier> courier_;
  std::unique_ptr<sweeps::Keeper> keeper_;
  std::unique_ptr<provision::Keeper> providers_keeper_;
  std::unique_ptr<rpc::JobServiceImpl> jobs_;
  std::unique_ptr<rpc::FleetServiceImpl> fleet_;
  std::unique_ptr<rpc::SharingServiceImpl> sharing_;
  std::unique_ptr<rpc::CheckpointServiceImpl> checkpoints_;
  std::unique_ptr<rpc::CodeServiceImpl> code_service_;
  std::unique_ptr<rpc::BundleServiceImpl> bundles_;
  std::unique_ptr<rpc::AgentServiceImpl> agents_;
  std::unique_ptr<rpc::AccessServiceImpl> access_;
  std::unique_ptr<rpc::SpecServiceImpl> specs_;
  std::unique_ptr<rpc::SweepServiceImpl> sweeps_;
  std::unique_ptr<rpc::SecretServiceImpl> secrets_;
  std::unique_ptr<rpc::NotifyServiceImpl> notify_;
  std::unique_ptr<rpc::ProviderServiceImpl> providers_;
};

}  // namespace trainyard::fuzz
