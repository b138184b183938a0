// Serves streams of messages as server-sent events, which browsers and curl read.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "server/http/event_cache.h"
#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

// Each message is an event whose data are its JSON and whose id is its place in the stream. The
// last event is `end`, or `error` with the error as JSON. If the call fails before there was any
// message, the answer is an error of HTTP instead. `list_attempts`, which may be null, tells how
// many ranks the log has that a client goes on with. Streams share their events by `cache`, which
// outlives them.
void ServeEvents(const RpcMethod& method, const RpcMethod* list_attempts, EventCache& cache,
                 const ExchangePtr& exchange);

// Writes one event. An empty id or kind is left out. `data` has no line breaks.
std::string EventText(absl::string_view id, absl::string_view kind, absl::string_view data);

}  // namespace trainyard::http
