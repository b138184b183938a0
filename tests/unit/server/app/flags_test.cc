#include "server/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParsedFlags Parse(std::vector<std::string> args) {
  args.insert(args.begin(), "trainyard-server");
  std::vector<char*> argv;
  argv.reserve(args.size());
  for (std::string& arg : args) argv.push_back(arg.data());
  return ParseFlags(static_cast<int>(argv.size()), argv.data(), "/default");
}

TEST(Flags, DefaultsApply) {
  const ParsedFlags flags = Parse({});
  EXPECT_FALSE(flags.exit_code.has_value());
  EXPECT_EQ(flags.options.state_dir, "/default");
  EXPECT_THAT(flags.options.listen, IsEmpty());
  EXPECT_EQ(flags.options.log_format, LogFormat::kText);
}

TEST(Flags, ListenMayBeGivenSeveralTimes) {
  const ParsedFlags flags = Parse({"--state_dir", "/s", "--listen", "unix:/s/a", "--listen",
                                   "unix:/s/b", "--log_format", "json"});
  EXPECT_EQ(flags.options.state_dir, "/s");
  EXPECT_THAT(flags.options.listen, ElementsAre("unix:/s/a", "unix:/s/b"));
  EXPECT_EQ(flags.options.log_format, LogFormat::kJson);
}

TEST(Flags, ServiceAccountsAreNamedOneByOne) {
  const ParsedFlags flags = Parse({"--kubernetes_users", "ml:builder=anna", "--kubernetes_users",
                                   "ml:*", "--kubernetes_workers", "trainyard:trainyard-worker"});
  EXPECT_FALSE(flags.exit_code.has_value());
  const kubernetes::Options& options = flags.options.kubernetes;
  EXPECT_THAT(options.users, ElementsAre(kubernetes::UserRule{{"ml", "builder"}, "anna"},
                                         kubernetes::UserRule{{"ml", "*"}, ""}));
  EXPECT_THAT(options.workers, ElementsAre(kubernetes::Account{"trainyard", "trainyard-worker"}));
  EXPECT_TRUE(options.is_on());
  EXPECT_FALSE(Parse({}).options.kubernetes.is_on());
  EXPECT_EQ(Parse({"--kubernetes_workers", "trainyard:*"}).exit_code, 2);
  EXPECT_EQ(Parse({"--kubernetes_users", "builder"}).exit_code, 2);
}

TEST(Flags, RolesAreGivenByGroupsAndByDefault) {
  const ParsedFlags flags = Parse({"--shared", "--admin_group", "wheel", "--operator_group",
                                   "staff", "--default_role", "viewer", "--keep_audit", "7 d"});
  EXPECT_FALSE(flags.exit_code.has_value());
  EXPECT_TRUE(flags.options.shared);
  EXPECT_EQ(flags.options.admin_group, "wheel");
  EXPECT_EQ(flags.options.operator_group, "staff");
  EXPECT_EQ(flags.options.default_role, access::Role::kViewer);
  EXPECT_EQ(flags.options.keep_audit_us, 7 * 24 * core::kHour);
  EXPECT_FALSE(Parse({}).options.shared);
}

TEST(Flags, RulesSayWhatIsKept) {
  const ParsedFlags flags =
      Parse({"--keep_jobs", "90d,5000 jobs", "--keep_logs", "1 GiB", "--keep_metrics", "forever"});
  EXPECT_FALSE(flags.exit_code.has_value());
  EXPECT_EQ(flags.options.keep.jobs.age, absl::Hours(90 * 24));
  EXPECT_EQ(flags.options.keep.jobs.jobs, 5000);
  EXPECT_EQ(flags.options.keep.logs.bytes, int64_t{1} << 30);
  EXPECT_TRUE(flags.options.keep.metrics.is_forever());
  EXPECT_TRUE(flags.options.keep.checkpoints.is_forever());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--keep_logs", "soon"}).exit_code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("'soon' is no limit"));
}

TEST(Flags, TheBucketOfCheckpointsIsAPlace) {
  const ParsedFlags flags =
      Parse({"--checkpoint_bucket", "s3://lab/yard", "--s3_endpoint", "http://127.0.0.1:1"});
  EXPECT_FALSE(flags.exit_code.has_value());
  EXPECT_EQ(flags.options.bucket.place, "s3://lab/yard");
  EXPECT_EQ(flags.options.bucket.endpoint, "http://127.0.0.1:1");
  EXPECT_FALSE(Parse({"--checkpoint_bucket", ""}).exit_code.has_value()) << "there is none";
  const ParsedFlags sources =
      Parse({"--checkpoint_sources", "s3://lab-a/b", "--checkpoint_sources", "s3://lab-c"});
  EXPECT_THAT(sources.options.checkpoint_sources, ElementsAre("s3://lab-a/b", "s3://lab-c"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--checkpoint_bucket", "/mnt/lab"}).exit_code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("is no place in a bucket"));
}

TEST(Flags, VersionAndHelpEndWell) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("trainyard-server 0."));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("--state_dir"));
}

TEST(Flags, TheTimesOfTheSchedulerAreDurationsWithAUnit) {
  const ParsedFlags flags = Parse({"--min_runtime", "90s", "--fair_share_half_life", "3 d"});
  EXPECT_FALSE(flags.exit_code.has_value());
  EXPECT_EQ(flags.options.config.min_runtime_us, 90 * core::kSecond);
  EXPECT_EQ(flags.options.config.usage_half_life_us, 3 * (24 * core::kHour));
  EXPECT_EQ(flags.options.config.checkpoint_wait_us, core::Config().checkpoint_wait_us);
}

TEST(Flags, BadUsageEndsWithTwo) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--no_such_flag"},
                                               {"--log_format", "xml"},
                                               {"--min_runtime", "5"},
                                               {"--default_role", "admin"},
                                               {"word"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(args).exit_code, 2);
    EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
  }
}

}  // namespace
}  // namespace trainyard
