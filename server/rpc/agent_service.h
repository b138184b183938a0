// Implements AgentService, which workers call. A stream of an attempt is accepted only under that
// attempt's fencing token, from a living session of a worker on which it was placed.
#pragma once

#include <functional>
#include <string>

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/rpc/tunnel_stream.h"
#include "server/rpc/worker_sessions.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class AgentServiceImpl : public v1::AgentService::CallbackService {
 public:
  explicit AgentServiceImpl(Services& services);

  TY_UNARY_RPC(AgentService, RegisterWorker, RegisterWorkerRequest, RegisterWorkerResponse);
  TY_UNARY_RPC(AgentService, SyncWorker, SyncWorkerRequest, SyncWorkerResponse);
  TY_UNARY_RPC(AgentService, AppendLog, AppendLogRequest, AppendResponse);
  TY_UNARY_RPC(AgentService, AppendMetrics, AppendMetricsRequest, AppendResponse);
  TY_UNARY_RPC(AgentService, AppendCheckpointFile, AppendCheckpointFileRequest, AppendResponse);
  TY_UNARY_RPC(AgentService, CommitCheckpoint, CommitCheckpointRequest, CommitCheckpointResponse);
  TY_STREAM_RPC(AgentService, FetchCheckpoint, DownloadCheckpointRequest,
                DownloadCheckpointResponse);
  TY_STREAM_RPC(AgentService, FetchCode, DownloadCodeRequest, DownloadCodeResponse);
  TY_UNARY_RPC(AgentService, VerifyCheckpoint, VerifyCheckpointRequest, Checkpoint);
  TunnelReactor* ServeTunnel(grpc::CallbackServerContext* context) override;
  TY_UNARY_RPC(AgentService, JoinWorker, JoinWorkerRequest, JoinWorkerResponse);
  TY_UNARY_RPC(AgentService, RenewCertificate, RenewCertificateRequest, RenewCertificateResponse);
  TY_UNARY_RPC(AgentService, FetchSecrets, FetchSecretsRequest, FetchSecretsResponse);

 private:
  using YardCheck = std::function<absl::Status(const core::Yard&)>;

  // Runs `check` on the writer, and then `work` on `executor`. `work` may block and must finish the
  // call.
  void CheckThenWork(grpc::ServerUnaryReactor* reactor, YardCheck check,
                     runtime::Executor& executor, std::function<void()> work);
  // Lets the worker of the session fetch the checkpoints from which it is told to start.
  void GrantCheckpoints(const std::string& session, const v1::SyncWorkerResponse& desired);
  // Reads what the program of the attempt names. Blocks on the disk.
  absl::Status ReadSecrets(AttemptId attempt, v1::FetchSecretsResponse& response);
  // Blocks on the disk.
  absl::StatusOr<int64_t> StoreLog(const runtime::LogId& log, const v1::AppendLogRequest& request);
  absl::StatusOr<int64_t> StorePoints(AttemptId attempt, const v1::AppendMetricsRequest& request);
  void CommitSealed(grpc::ServerUnaryReactor* reactor, core::CommitCheckpoint input,
                    v1::CommitCheckpointResponse* response);

  Services& services_;
  WorkerSessions sessions_;
};

}  // namespace trainyard::rpc
