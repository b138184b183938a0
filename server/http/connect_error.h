// Writes errors in the form of the Connect protocol: the code as a word, the message, and the
// google.rpc details.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/http/exchange.h"

namespace trainyard::http {

// Returns the status of HTTP that the Connect protocol gives a code.
int HttpStatusOf(absl::StatusCode code);
// Returns the error as JSON: {"code":"not_found","message":"...","details":[...]}. Each detail has
// its type, its bytes in base64, and the same as JSON for people under "debug".
std::string ErrorJson(const absl::Status& status);
// Returns the answer to a request that has failed.
Response ErrorResponse(const absl::Status& status);
// Returns an error of HTTP itself, which keeps this status: 405, 413, 415...
Response ErrorResponse(int http_status, const absl::Status& status);

}  // namespace trainyard::http
