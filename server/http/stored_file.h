// Serves the files of checkpoints and the outputs of programs as plain bytes:
//   GET /files/jobs/7/checkpoints/626/model.safetensors
//   GET /files/jobs/7/outputs/results/table.csv
// A download that breaks off goes on with `Range: bytes=N-`, as `curl -C -` does.
#pragma once

#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

inline constexpr char kFilesPath[] = "/files/";

// The calls by which files are served; null for those that the door does not have.
struct FileCalls {
  const RpcMethod* get_checkpoint = nullptr;
  const RpcMethod* download_checkpoint = nullptr;
  const RpcMethod* get_outputs = nullptr;
  const RpcMethod* download_output = nullptr;

  bool is_complete() const {
    return get_checkpoint != nullptr && download_checkpoint != nullptr && get_outputs != nullptr &&
           download_output != nullptr;
  }
};

// Serves one request. The calls must be complete, and outlive it.
void ServeFile(const FileCalls& calls, const ExchangePtr& exchange);

}  // namespace trainyard::http
