// Serves the files of checkpoints as plain bytes:
//   GET /files/jobs/7/checkpoints/626/model.safetensors
// A download that breaks off goes on with `Range: bytes=N-`, as `curl -C -` does.
#pragma once

#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

inline constexpr char kFilesPath[] = "/files/";

// Serves one request by the calls GetCheckpoint and DownloadCheckpoint.
void ServeCheckpointFile(const RpcMethod& get, const RpcMethod& download,
                         const ExchangePtr& exchange);

}  // namespace trainyard::http
