// One server, and several users of its host: the kernel says who calls, whatever the caller says.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "tests/integration/yard.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

// Users other than the one that runs the server. The second one has no name.
constexpr int kNobody = 65534;
constexpr int kNameless = 1'234'567;

class PeopleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
    // Others must be able to run the client.
    struct stat info {};
    ASSERT_EQ(stat(Yard::Binary("trainyard").c_str(), &info), 0);
    const auto result = As(kNobody, {"version"});
    if (result.exit_code != 0 && result.out.empty()) {
      GTEST_SKIP() << "other users cannot run the programs of this build: " << result.err;
    }
    ASSERT_EQ(chmod(open_dir_.path().c_str(), 0755), 0);
    yard_.StartServer();
  }

  // `trainyard ARGS` by a user of this host.
  ProcessResult As(int uid, std::vector<std::string> args) {
    Process::Options options;
    options.args = {Yard::Binary("trainyard"), "--server", socket_};
    options.args.insert(options.args.end(), args.begin(), args.end());
    options.environment = {{"HOME", "/nonexistent"}, {"USER", "root"}, {"LOGNAME", "root"}};
    options.uid = uid;
    const auto result = RunProcess(std::move(options), scratch_.path(), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(ProcessResult{});
  }

  std::string SpecFile() {
    const std::string path = open_dir_.File("job.yaml");
    open_dir_.Write("job.yaml", SmallSpec("theirs", 1, 1, 256));
    EXPECT_EQ(chmod(path.c_str(), 0644), 0);
    return path;
  }

  TempDir open_dir_;
  TempDir scratch_;
  const std::string socket_ = "unix:" + open_dir_.File("trainyard.sock");
  Yard yard_{[this] {
    Yard::Options options;
    options.server_flags = {"--listen", socket_, "--shared"};
    return options;
  }()};
};

TEST_F(PeopleTest, TheKernelSaysWhoCalls) {
  EXPECT_THAT(As(0, {"whoami"}).out, HasSubstr("user    root\nrole    admin"));
  EXPECT_THAT(As(kNobody, {"whoami"}).out, HasSubstr("user    nobody\nrole    submitter"));
  EXPECT_THAT(As(kNameless, {"whoami"}).out, HasSubstr("user    1234567\n"));
}

TEST_F(PeopleTest, JobsBelongToWhoSubmitsThemAndOthersOnlyLook) {
  ASSERT_EQ(As(0, {"submit", SpecFile()}).exit_code, 0);
  ASSERT_EQ(As(kNobody, {"submit", SpecFile()}).exit_code, 0);
  EXPECT_EQ(yard_.GetJob("jobs/1").user(), "root");
  EXPECT_EQ(yard_.GetJob("jobs/2").user(), "nobody");
  EXPECT_EQ(As(kNobody, {"show", "1"}).exit_code, 0);
  const ProcessResult refused = As(kNobody, {"cancel", "1"});
  EXPECT_EQ(refused.exit_code, 5) << refused.err;
  EXPECT_THAT(refused.out + refused.err, HasSubstr("jobs/1 belongs to 'root'"));
  EXPECT_EQ(As(kNameless, {"cancel", "2"}).exit_code, 5);
  EXPECT_EQ(As(kNobody, {"drain", "alpha"}).exit_code, 5);
  EXPECT_EQ(As(kNobody, {"quotas", "set", "user:root", "--devices", "1"}).exit_code, 5);
  EXPECT_EQ(As(kNobody, {"cancel", "2"}).exit_code, 0);
  EXPECT_EQ(yard_.GetJob("jobs/1").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(yard_.GetJob("jobs/2").state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(PeopleTest, AdministratorsActForOthersAndTheAuditLogSaysSo) {
  ASSERT_EQ(As(0, {"submit", SpecFile(), "--as", "nobody"}).exit_code, 0);
  EXPECT_EQ(yard_.GetJob("jobs/1").user(), "nobody");
  EXPECT_EQ(As(kNobody, {"ls", "--as", "root"}).exit_code, 5);
  const ProcessResult audit = As(0, {"audit"});
  EXPECT_THAT(audit.out, HasSubstr("root as nobody"));
  EXPECT_THAT(audit.out, HasSubstr("refused: 'nobody' may not act for 'root'"));
  EXPECT_EQ(As(kNobody, {"audit"}).exit_code, 5);
}

TEST_F(PeopleTest, RolesAndProjectsAreSetByTheClient) {
  ASSERT_EQ(As(0, {"users", "set", "nobody", "--role", "viewer"}).exit_code, 0);
  EXPECT_EQ(As(kNobody, {"submit", SpecFile()}).exit_code, 5);
  EXPECT_EQ(As(kNobody, {"ls"}).exit_code, 0);
  EXPECT_THAT(As(0, {"users", "ls"}).out, HasSubstr("nobody"));
  ASSERT_EQ(As(0, {"users", "rm", "nobody"}).exit_code, 0);
  EXPECT_EQ(As(kNobody, {"submit", SpecFile()}).exit_code, 0);
  const ProcessResult set =
      As(0, {"projects", "set", "vision", "--visibility", "private", "--add", "anna"});
  EXPECT_THAT(set.err, HasSubstr("private; its members are: anna"));
  const ProcessResult refused = As(kNobody, {"submit", SpecFile(), "--project", "vision"});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("trainyard projects set vision --add nobody"));
}

// Connections of this thread are those of another user, for only its own identity is changed.
void BecomeThisThread(int uid) {
  ASSERT_EQ(syscall(SYS_setresgid, uid, uid, uid), 0);
  ASSERT_EQ(syscall(SYS_setresuid, uid, uid, uid), 0);
}

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return {};
  return fd;
}

TEST_F(PeopleTest, AUserWhoConnectsTenThousandTimesTakesNothingFromOthers) {
  constexpr int kConnections = 10'000;
  constexpr size_t kKept = 900;  // below the limit of descriptors of this process
  std::thread mallory([path = open_dir_.File("trainyard.sock")] {
    BecomeThisThread(kNobody);
    std::vector<UniqueFd> kept;
    for (int i = 0; i < kConnections; ++i) {
      UniqueFd fd = ConnectTo(path);
      if (fd.valid() && kept.size() < kKept) kept.push_back(std::move(fd));
    }
  });
  const auto channel = rpc::MakeChannel(socket_);
  ASSERT_TRUE(channel.ok());
  const auto access = v1::AccessService::NewStub(*channel);
  std::vector<absl::Duration> waits;
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::WhoAmIResponse who;
    const absl::Duration begin = Clock::Real()->Uptime();
    ASSERT_TRUE(access->WhoAmI(&context, {}, &who).ok());
    waits.push_back(Clock::Real()->Uptime() - begin);
    EXPECT_EQ(who.user(), "root");
  }
  mallory.join();
  std::sort(waits.begin(), waits.end());
  RecordProperty("p99_ms",
                 absl::StrCat(absl::ToDoubleMilliseconds(waits[waits.size() * 99 / 100])));
  EXPECT_EQ(As(kNobody, {"whoami"}).exit_code, 0) << "the connections are gone, so there is room";
}

TEST_F(PeopleTest, TheSocketOfAServerThatIsNotSharedIsItsUsersAlone) {
  const std::string own = yard_.address().substr(std::string("unix:").size());
  struct stat info {};
  ASSERT_EQ(stat(own.c_str(), &info), 0);
  // Both sockets belong to a shared server here.
  EXPECT_EQ(info.st_mode & 0777, 0666U);
  Yard alone;
  alone.StartServer();
  ASSERT_EQ(stat(alone.address().substr(std::string("unix:").size()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

}  // namespace
}  // namespace trainyard::testing
