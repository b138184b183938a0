// How unary calls end. A handler checks its request, then returns one of these; it never blocks.
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

// At once: the response is there already, or there is none.
grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const absl::Status& status);
// The request is refused, with all that is wrong with it.
grpc::ServerUnaryReactor* Refused(grpc::CallbackServerContext* context, RequestCheck& check);

// Once `fill` has looked at the yard, on the writer. All that it sees is committed.
using FillFromYard = std::function<absl::Status(const core::Yard& yard)>;
grpc::ServerUnaryReactor* FinishFromYard(grpc::CallbackServerContext* context, Services& services,
                                         FillFromYard fill);

// Once `work` is done, on the executor, where it may block.
grpc::ServerUnaryReactor* FinishAfter(grpc::CallbackServerContext* context, Services& services,
                                      std::function<absl::Status()> work);

// Once what `input` brings about is on disk and on the board. `fill` may look there.
using FillFromReply = std::function<absl::Status(const core::Reply& reply)>;
grpc::ServerUnaryReactor* FinishWhenDone(
    grpc::CallbackServerContext* context, Services& services, core::Input input,
    FillFromReply fill = [](const core::Reply&) { return absl::OkStatus(); });

// JOB_NOT_FOUND.
absl::StatusOr<std::shared_ptr<const runtime::JobView>> FindJob(const runtime::Board& board,
                                                                JobId job);

}  // namespace trainyard::rpc
