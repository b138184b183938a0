// Lists the calls that the door serves: those of the table of rules that are for users, and have
// one request.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace trainyard::http {

struct RpcMethod {
  // "/trainyard.v1.JobService/GetJob": the path of gRPC and of HTTP alike.
  std::string path;
  const google::protobuf::MethodDescriptor* descriptor = nullptr;
  // It may be called with GET, since it changes nothing.
  bool is_read = false;
  bool is_stream = false;
};

std::vector<RpcMethod> RpcMethods();

}  // namespace trainyard::http
