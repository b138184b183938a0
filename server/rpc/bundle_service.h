// Implements BundleService, which takes jobs in that ran elsewhere.
#pragma once

#include <functional>

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "trainyard/v1/bundle.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class BundleServiceImpl : public v1::BundleService::CallbackService {
 public:
  explicit BundleServiceImpl(Services& services);

  TY_UNARY_RPC(BundleService, ImportJob, ImportJobRequest, Job);
  TY_UNARY_RPC(BundleService, AppendImportedMetrics, AppendImportedMetricsRequest,
               AppendImportedResponse);
  TY_UNARY_RPC(BundleService, AppendImportedFile, AppendImportedFileRequest,
               AppendImportedResponse);
  TY_UNARY_RPC(BundleService, CommitImportedCheckpoint, CommitImportedCheckpointRequest,
               Checkpoint);
  TY_UNARY_RPC(BundleService, ImportCheckpoint, ImportCheckpointRequest, ImportCheckpointResponse);

 private:
  // Asks the yard for the attempt of an imported job for which `bytes` more are to be stored, then
  // works with it on the executor. Finishes with the error if there is one.
  using AttemptWork = std::function<void(AttemptId attempt)>;
  void CheckThenWork(grpc::ServerUnaryReactor* reactor, JobId job, int64_t bytes,
                     runtime::Executor& executor, AttemptWork work);
  absl::StatusOr<int64_t> StoreImportedPoints(AttemptId attempt,
                                              const v1::AppendImportedMetricsRequest& request);
  void CommitImported(grpc::ServerUnaryReactor* reactor, AttemptId attempt,
                      core::CommitImport input, v1::Checkpoint* response);

  Services& services_;
};

}  // namespace trainyard::rpc
