// Implements SweepService.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/sweeping/record.h"
#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/runtime/executor.h"
#include "server/store/sqlite/sweep_store.h"
#include "server/sweeps/sweep.h"
#include "trainyard/v1/sweep_service.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class SweepServiceImpl : public v1::SweepService::CallbackService {
 public:
  explicit SweepServiceImpl(Services& services);

  TY_UNARY_RPC(SweepService, CreateSweep, CreateSweepRequest, Sweep);
  TY_UNARY_RPC(SweepService, GetSweep, GetSweepRequest, Sweep);
  TY_UNARY_RPC(SweepService, ListSweeps, ListSweepsRequest, ListSweepsResponse);
  TY_UNARY_RPC(SweepService, StopSweep, StopSweepRequest, Sweep);
  TY_UNARY_RPC(SweepService, ResumeSweep, ResumeSweepRequest, Sweep);
  TY_UNARY_RPC(SweepService, DeleteSweep, DeleteSweepRequest, DeleteSweepResponse);

 private:
  // Returns the number of a sweep that the caller may see, or change. It may wait for the disk.
  absl::StatusOr<int64_t> Find(const access::Caller& caller, const std::string& name,
                               bool to_change) const;
  // Writes down what the caller asks of a sweep, and shows it.
  absl::Status Ask(const std::string& name, const std::vector<core::sweeping::EntryKind>& kinds,
                   const access::Caller& caller, v1::Sweep& response);

  Services& services_;
  // One change after the other; a flood of them delays nothing else.
  runtime::Executor changes_{1, 256};
};

// Makes the submission of a job of a trial, for the owner of the sweep.
absl::StatusOr<core::SubmitJob> SubmissionOfTrial(const store::SweepRecord& sweep,
                                                  const sweeps::NewJob& job, Services& services);

}  // namespace trainyard::rpc
