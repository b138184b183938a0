// One server, and several users of its host: the kernel says who calls, whatever the caller says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/shared_yard.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class PeopleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = host_.WhyNot(); !why.empty()) GTEST_SKIP() << why;
    host_.Start();
  }

  ProcessResult As(int uid, std::vector<std::string> args) {
    return host_.As(uid, std::move(args));
  }

  std::string SpecFile() {
    const std::string path = host_.open_dir().Write("job.yaml", SmallSpec("theirs", 1, 1, 256));
    EXPECT_EQ(chmod(path.c_str(), 0644), 0);
    return path;
  }

  SharedYard host_;
  Yard& yard_ = host_.yard();
};

TEST_F(PeopleTest, TheKernelSaysWhoCalls) {
  EXPECT_THAT(As(0, {"whoami"}).out, HasSubstr("user    root\nrole    admin"));
  EXPECT_THAT(As(kNobody, {"whoami"}).out, HasSubstr("user    nobody\nrole    submitter"));
  EXPECT_THAT(As(kNameless, {"whoami"}).out, HasSubstr("user    1234567\n"));
}

TEST_F(PeopleTest, TheDoctorTellsEachUserWhatTheServerSays) {
  const ProcessResult own = As(0, {"doctor"});
  EXPECT_THAT(own.out, HasSubstr("To the server, you are root, admin."));
  EXPECT_THAT(own.out, HasSubstr("The server has no workers"));
  EXPECT_THAT(As(kNobody, {"doctor"}).out, HasSubstr("To the server, you are nobody, submitter."));
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
