// Implements CodeService, which takes and hands out code archives.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "trainyard/v1/code.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class CodeServiceImpl : public v1::CodeService::CallbackService {
 public:
  explicit CodeServiceImpl(Services& services);

  TY_UNARY_RPC(CodeService, FindCode, FindCodeRequest, FindCodeResponse);
  TY_UNARY_RPC(CodeService, UploadCode, UploadCodeRequest, UploadCodeResponse);
  TY_STREAM_RPC(CodeService, DownloadCode, DownloadCodeRequest, DownloadCodeResponse);

 private:
  Services& services_;
};

}  // namespace trainyard::rpc
