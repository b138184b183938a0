// Ends unary calls. A handler checks its request, then returns one of these; it never blocks.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/core/yard/yard.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"

namespace trainyard::rpc {

// Finishes at once: the response is filled in already, or there is an error.
grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const absl::Status& status);
// Refuses the request with all its violations.
grpc::ServerUnaryReactor* Refused(grpc::CallbackServerContext* context, RequestCheck& check);

// Finishes once `fill` has read the yard, on the writer. All that it reads is committed.
using FillFromYard = std::function<absl::Status(const core::Yard& yard)>;
grpc::ServerUnaryReactor* FinishFromYard(grpc::CallbackServerContext* context, Services& services,
                                         FillFromYard fill);

// Finishes once `work` is done, on `executor`, where it may block.
grpc::ServerUnaryReactor* FinishAfter(grpc::CallbackServerContext* context,
                                      runtime::Executor& executor,
                                      std::function<absl::Status()> work);

// Finishes once the effect of `input` is on disk and on the board. `fill` may read the board.
using FillFromReply = std::function<absl::Status(const core::Reply& reply)>;
grpc::ServerUnaryReactor* FinishWhenDone(
    grpc::CallbackServerContext* context, Services& services, core::Input input,
    FillFromReply fill = [](const core::Reply&) { return absl::OkStatus(); });

// Returns the job, or JOB_NOT_FOUND.
absl::StatusOr<std::shared_ptr<const runtime::JobView>> FindJob(const runtime::Board& board,
                                                                JobId job);

}  // namespace trainyard::rpc
