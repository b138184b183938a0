#include "common/rpc/channel.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/rpc/address.h"

namespace trainyard::rpc {
namespace {

using ::testing::HasSubstr;

std::string SocketAddress(absl::string_view name) {
  return absl::StrCat("unix:", testing::TempDir(), "/", name, getpid(), ".sock");
}

TEST(Channel, ReachesAServerOnAUnixSocket) {
  const std::string address = SocketAddress("channel");
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  grpc::AsyncGenericService service;
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto channel = MakeChannel(address);
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ(WaitForServer(**channel, address, absl::Seconds(10)), absl::OkStatus());
  server->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

TEST(Channel, AMissingServerIsReportedAtOnceWithTheCause) {
  const std::string address = SocketAddress("missing");
  const auto channel = MakeChannel(address);
  ASSERT_TRUE(channel.ok());
  const absl::Status status = WaitForServer(**channel, address, absl::Minutes(1));
  EXPECT_EQ(ErrorReason(status), "SERVER_UNREACHABLE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainyard up"));
}

TEST(Channel, AnAddressThatIsNoneIsRefused) {
  EXPECT_EQ(MakeChannel("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MakeChannel("127.0.0.1:0").status().message()), HasSubstr("port 0"));
}

}  // namespace
}  // namespace trainyard::rpc
