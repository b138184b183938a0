// Implements AgentService, which workers call. A stream of an attempt is accepted only under that
// attempt's fencing token, from a living session of a worker on which it was placed.
#pragma once

#include <functional>
#include <string>

#include "server/rpc/services.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class AgentServiceImpl : public v1::AgentService::CallbackService {
 public:
  explicit AgentServiceImpl(Services& services) : services_(services) {}

  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::RegisterWorkerResponse* response) override;
  grpc::ServerUnaryReactor* SyncWorker(grpc::CallbackServerContext* context,
                                       const v1::SyncWorkerRequest* request,
                                       v1::SyncWorkerResponse* response) override;
  grpc::ServerUnaryReactor* AppendLog(grpc::CallbackServerContext* context,
                                      const v1::AppendLogRequest* request,
                                      v1::AppendResponse* response) override;
  grpc::ServerUnaryReactor* AppendMetrics(grpc::CallbackServerContext* context,
                                          const v1::AppendMetricsRequest* request,
                                          v1::AppendResponse* response) override;
  grpc::ServerUnaryReactor* AppendCheckpointFile(grpc::CallbackServerContext* context,
                                                 const v1::AppendCheckpointFileRequest* request,
                                                 v1::AppendResponse* response) override;
  grpc::ServerUnaryReactor* CommitCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CommitCheckpointRequest* request,
                                             v1::CommitCheckpointResponse* response) override;
  grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* FetchCheckpoint(
      grpc::CallbackServerContext* context, const v1::DownloadCheckpointRequest* request) override;
  grpc::ServerUnaryReactor* VerifyCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::VerifyCheckpointRequest* request,
                                             v1::Checkpoint* response) override;

 private:
  using YardCheck = std::function<absl::Status(const core::Yard&)>;

  // Runs `check` on the writer, and then `work` on `executor`. `work` may block and must finish the
  // call.
  void CheckThenWork(grpc::ServerUnaryReactor* reactor, YardCheck check,
                     runtime::Executor& executor, std::function<void()> work);
  absl::StatusOr<int64_t> StorePoints(AttemptId attempt, const v1::AppendMetricsRequest& request);
  void CommitSealed(grpc::ServerUnaryReactor* reactor, core::CommitCheckpoint input,
                    v1::CommitCheckpointResponse* response);

  Services& services_;
};

}  // namespace trainyard::rpc
