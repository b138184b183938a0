// Makes calls whose types the test does not know.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace trainyard::testing {

// Calls a method, "/trainyard.v1.JobService/ListJobs", with the bytes of a request. If an answer
// comes, the call is cancelled after the first message of it. The call ends after 30 s at the
// latest.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request = "");

}  // namespace trainyard::testing
