// Serves GET /metrics, which Prometheus reads, to everybody who may see jobs.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

inline constexpr char kMetricsPath[] = "/metrics";

// Writes the text. `done` is called once, by any thread.
using WriteMetrics = std::function<void(std::function<void(absl::StatusOr<std::string>)> done)>;

// Serves one request, if WhoAmI says that the client is at least a viewer.
void ServeMetrics(const RpcMethod& who_am_i, const WriteMetrics& write,
                  const ExchangePtr& exchange);

}  // namespace trainyard::http
