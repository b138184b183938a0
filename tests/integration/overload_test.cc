// Takes from the server what it needs, as many clients do together. It sheds new work, keeps the
// old, and recovers by itself.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/files.h"
#include "common/rpc/address.h"
#include "tests/faults/report.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

// Opens a connection to a Unix socket that says nothing.
UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

bool IsClosed(const UniqueFd& fd) {
  char byte = 0;
  return recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

TEST(Overload, AServerOutOfDescriptorsKeepsItsConnectionsAndTakesNewOnesLater) {
  FaultRow row({.fault = "the server's resources are exhausted",
                .injection = "more idle connections than descriptors",
                .expectation = "new connections are closed, the old ones are served; once there "
                               "is room, new ones are taken"});
  constexpr rlim_t kLimit = 256;
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("long", 1, 1000, 4000));
  ASSERT_TRUE(yard.WaitForStep(job, 1));
  const rlimit limit = {kLimit, kLimit};
  ASSERT_EQ(prlimit(yard.server()->pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  const std::string path = rpc::ParseAddress(yard.address())->path;
  std::vector<UniqueFd> flood;
  for (rlim_t i = 0; i < kLimit + 100; ++i) flood.push_back(ConnectTo(path));
  ASSERT_TRUE(WaitUntil([&] { return IsClosed(flood.back()); }, kPatience));
  EXPECT_FALSE(IsClosed(flood.front())) << "what is connected stays so";
  const int64_t step = yard.GetJob(job).progress().step();
  EXPECT_TRUE(yard.WaitForStep(job, step + 50)) << "the worker and the test are still served";
  // A file that the server closes leaves a low descriptor, which a further connection takes.
  EXPECT_TRUE(WaitUntil(
      [&] {
        // Silent connections are closed after some seconds, and more than those must come.
        for (int i = 0; i < 20; ++i) flood.push_back(ConnectTo(path));
        return yard.Cli({"ls"}).exit_code != 0;
      },
      kPatience));

  flood.clear();
  ASSERT_TRUE(WaitUntil([&] { return yard.Cli({"ls"}).exit_code == 0; }, kPatience));
  EXPECT_EQ(yard.GetJob(job).attempt(), 1);
  row.Count("connections", static_cast<int64_t>(kLimit) + 100);
  row.Count("descriptors", static_cast<int64_t>(kLimit));
  if (!HasFailure()) row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
