// Converts the messages of the AgentService to values of the core, and back.
#pragma once

#include "server/core/yard/inputs.h"
#include "server/rpc/request.h"
#include "server/runtime/board.h"
#include "server/runtime/runtime.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::rpc {

// Converts a registration. Violations are added to `check`.
core::RegisterWorker FromProto(const v1::RegisterWorkerRequest& request, RequestCheck& check);
core::SyncReport FromProto(const v1::SyncWorkerRequest& request, RequestCheck& check);
core::Progress FromProto(const v1::Progress& progress, const std::string& field,
                         RequestCheck& check);
core::CheckpointFile FromProto(const v1::CheckpointFile& file, const std::string& field,
                               RequestCheck& check);

// Converts the desired state. Specs and checkpoints come from the board.
v1::SyncWorkerResponse ToProto(const runtime::DesiredState& desired, const runtime::Board& board);

}  // namespace trainyard::rpc
