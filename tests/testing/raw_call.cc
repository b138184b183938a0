// Uses the generic stub, which takes the calls of all methods as streams of bytes.
#include "tests/testing/raw_call.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "common/rpc/channel.h"

namespace trainyard::testing {

grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  rpc::SetTimeout(context, absl::Seconds(30));
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  call->StartCall(nullptr);
  wait();
  const grpc::Slice slice(request);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  wait();
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  if (wait()) context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  return status;
}

}  // namespace trainyard::testing
