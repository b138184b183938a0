#include "common/rpc/channel.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

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

TEST(Channel, AServerWhoseQueueIsFullIsWaitedFor) {
  const std::string address = SocketAddress("full");
  const auto parsed = ParseAddress(address);
  ASSERT_TRUE(parsed.ok());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, parsed->path.c_str(), parsed->path.size() + 1);
  const auto* named = reinterpret_cast<const sockaddr*>(&name);
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), named, sizeof(name)), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  do {
    waiting.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back().get(), named, sizeof(name)) == 0);
  ASSERT_EQ(errno, EAGAIN);
  const auto channel = MakeChannel(address);
  ASSERT_TRUE(channel.ok());
  const absl::Status status = WaitForServer(**channel, address, absl::Seconds(1));
  EXPECT_EQ(ErrorReason(status), "SERVER_UNREACHABLE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer within"));
  // Once there is room, the channel connects.
  waiting.clear();
  absl::Status later;
  std::thread client([&] { later = WaitForServer(**channel, address, absl::Seconds(60)); });
  while (true) {
    const UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
    char first = 0;
    if (recv(accepted.get(), &first, 1, MSG_WAITALL) != 1 || first != 'P') continue;
    const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
    EXPECT_EQ(send(accepted.get(), settings.data(), settings.size(), MSG_NOSIGNAL), 9);
    client.join();
    break;
  }
  EXPECT_EQ(later, absl::OkStatus());
}

TEST(Channel, AnAddressThatIsNoneIsRefused) {
  EXPECT_EQ(MakeChannel("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MakeChannel("127.0.0.1:0").status().message()), HasSubstr("port 0"));
}

}  // namespace
}  // namespace trainyard::rpc
