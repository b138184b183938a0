// Tests that checkpoints go to a bucket as they are committed, and that another server goes on from
// there once the first one is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/process.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Bucket : public ::testing::Test {
 protected:
  std::string Place(const std::string& folder) const {
    return absl::StrCat("s3://", fake_.ClientOptions().bucket, "/", folder);
  }
  Yard::Options Options(std::vector<std::string> flags) const {
    const s3::ClientOptions client = fake_.ClientOptions();
    Yard::Options options;
    options.server_flags = std::move(flags);
    options.server_flags.insert(options.server_flags.end(), {"--s3_endpoint", client.endpoint});
    options.server_environment = {
        {"AWS_ACCESS_KEY_ID", client.credentials.access_key_id},
        {"AWS_SECRET_ACCESS_KEY", client.credentials.secret_access_key},
        {"AWS_REGION", client.region},
    };
    return options;
  }
  static std::string Spec(const std::string& name) {
    return SmallSpec(name, 1, 3, 1000, "checkpoint: {every: 5 steps, keep: {last: 1}}\n");
  }
  static std::map<int64_t, double> Losses(Yard& yard, const std::string& job) {
    std::map<int64_t, double> losses;
    for (const v1::MetricPoint& point : yard.Metrics(job, "train.loss")) {
      losses[point.step()] = point.value();
    }
    return losses;
  }
  // Waits until all checkpoints of the job are in the bucket, and returns the place of the newest.
  static std::string AwaitCopies(Yard& yard, const std::string& job) {
    std::string newest;
    EXPECT_TRUE(WaitUntil(
        [&] {
          const nlohmann::json listed = yard.CliJson({"checkpoints", "ls", job});
          for (const nlohmann::json& checkpoint : listed) {
            newest = checkpoint.value("copy", "");
            if (newest.empty()) return false;
          }
          return !listed.empty();
        },
        kPatience));
    return newest;
  }

  // Counts the files that were read from the bucket.
  int BlobsFetched() const {
    const std::vector<std::string> requests = fake_.Requests();
    return static_cast<int>(
        std::count_if(requests.begin(), requests.end(), [](const std::string& request) {
          return absl::StartsWith(request, "GET ") && absl::StrContains(request, "/blobs/");
        }));
  }

  FakeS3 fake_;
};

TEST_F(Bucket, AnotherServerGoesOnOnceTheFirstIsGone) {
  std::map<int64_t, double> undisturbed;
  std::string begun;
  {
    Yard first(Options({"--checkpoint_bucket", Place("first")}));
    first.Start();
    const std::string whole = first.Submit(Spec("whole"));
    ASSERT_EQ(first.WaitForEnd(whole).state(), v1::JOB_STATE_SUCCEEDED);
    undisturbed = Losses(first, whole);
    begun = first.Submit(Spec("begun"));
    ASSERT_TRUE(first.WaitForStep(begun, 20));
    ASSERT_TRUE(WaitUntil(
        [&] {
          return !fake_.Keys(absl::StrCat("first/checkpoints/2/")).empty() &&
                 !first.CliJson({"checkpoints", "ls", begun}).empty();
        },
        kPatience));
    first.KillWorker();
    AwaitCopies(first, begun);
    first.KillServer();
  }
  ASSERT_FALSE(undisturbed.empty());

  Yard second(Options({"--checkpoint_sources", Place("first")}));
  second.Start();
  const std::string from = Place("first/checkpoints/2");
  const std::string job = second.Submit(Spec("goes-on"), {"--from", from});
  const v1::Job ended = second.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.resolved_spec().from_checkpoint().substr(0, 19), "jobs/1/checkpoints/");
  const std::map<int64_t, double> continued = Losses(second, job);
  ASSERT_FALSE(continued.empty());
  EXPECT_GT(continued.begin()->first, 5) << "it does not begin anew";
  EXPECT_LT(continued.size(), undisturbed.size());
  EXPECT_EQ(continued.rbegin()->first, undisturbed.rbegin()->first);
  for (const auto& [step, loss] : continued) {
    EXPECT_EQ(loss, undisturbed.at(step)) << "at step " << step;
  }
  // The record of the job that ran there is a job here.
  const v1::Job record = second.GetJob("jobs/1");
  EXPECT_EQ(record.resolved_spec().name(), "begun");
  EXPECT_THAT(second.Cli({"show", "1", "--events"}).out, HasSubstr("JOB_IMPORTED"));

  // A second job finds what is there, and fetches no file again.
  const int fetched = BlobsFetched();
  EXPECT_GT(fetched, 0);
  const v1::Job again = second.WaitForEnd(second.Submit(Spec("again"), {"--from", from}));
  EXPECT_EQ(again.state(), v1::JOB_STATE_SUCCEEDED) << again.failure().message();
  EXPECT_EQ(again.resolved_spec().from_checkpoint(), ended.resolved_spec().from_checkpoint());
  EXPECT_EQ(BlobsFetched(), fetched);
}

// The host is lost with its disk, in the middle of a job, and another one goes on.
TEST_F(Bucket, AServerWhoseHostIsLostGoesOnFromTheBackupOfTheLastSeconds) {
  Yard yard(Options({}));
  yard.Start();
  const std::string ended = yard.Submit(SmallSpec("ended", 1, 1, 64));
  ASSERT_EQ(yard.WaitForEnd(ended).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string running = yard.Submit(SmallSpec("running", 1, 400, 64));
  ASSERT_TRUE(yard.WaitForStep(running, 2));

  const Yard::Options options = Options({});
  const auto server = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {Yard::Binary("trainyard-server"), "--state_dir", yard.server_state_dir()});
    Process::Options process;
    process.args = std::move(words);
    process.environment = options.server_environment;
    process.stdout_path = yard.File("backup.out");
    process.stderr_path = yard.File("backup.err");
    return process;
  };
  const std::vector<std::string> store = {"--s3_endpoint", fake_.ClientOptions().endpoint};
  std::vector<std::string> backup = {"backup", yard.File("newest"), "--every",
                                     "200ms",  "--bucket",          Place("server")};
  backup.insert(backup.end(), store.begin(), store.end());
  auto following = Process::Start(server(backup));
  ASSERT_TRUE(following.ok()) << following.status();
  const auto versions = [&] { return fake_.Keys("server/manifests/").size(); };
  ASSERT_TRUE(WaitUntil([&] { return versions() > 0; }, kPatience));
  // A job waits that is younger than the first version, and is in a later one.
  const std::string waiting = yard.Submit(SmallSpec("waiting", 2, 1, 64));
  const size_t before = versions();
  ASSERT_TRUE(WaitUntil([&] { return versions() >= before + 3; }, kPatience));
  ASSERT_TRUE(yard.WaitForStep(running, 20));

  yard.KillServer();
  following->reset();
  ASSERT_TRUE(RemoveTree(yard.server_state_dir()).ok());
  ASSERT_TRUE(RemoveTree(yard.File("newest")).ok());
  std::vector<std::string> fetch = {"fetch", Place("server"), yard.File("fetched")};
  fetch.insert(fetch.end(), store.begin(), store.end());
  const auto run = [&](std::vector<std::string> words) {
    const auto result = RunProcess(server(std::move(words)), yard.File(""), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  };
  const ProcessResult fetched = run(fetch);
  ASSERT_EQ(fetched.exit_code, 0) << fetched.out << fetched.err;
  EXPECT_THAT(fetched.out, HasSubstr(" ago.")) << "how much is lost";
  const std::string snapshot = fetched.out.substr(0, fetched.out.find(" is whole"));
  const ProcessResult restored = run({"restore", snapshot});
  ASSERT_EQ(restored.exit_code, 0) << restored.out << restored.err;
  yard.StartServer();
  EXPECT_EQ(yard.GetJob(ended).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.Cli({"checkpoints", "verify", "1"}).exit_code, 0);
  EXPECT_EQ(yard.GetJob(waiting).state(), v1::JOB_STATE_QUEUED);
  const int64_t step = yard.GetJob(running).progress().step();
  EXPECT_TRUE(yard.WaitForStep(running, step + 20)) << "the worker tells the server of it";
  EXPECT_EQ(yard.GetJob(running).attempt(), 1);
  const std::vector<v1::MetricPoint> losses = yard.Metrics(running, "train.loss");
  std::set<int64_t> steps;
  for (const v1::MetricPoint& point : losses) steps.insert(point.step());
  EXPECT_EQ(steps.size(), losses.size()) << "no point comes twice";
  EXPECT_EQ(static_cast<int64_t>(steps.size()), *steps.rbegin() - *steps.begin() + 1)
      << "and none is missing";
  EXPECT_EQ(yard.Cli({"cancel", "2", "3"}).exit_code, 0);
  EXPECT_EQ(yard.WaitForEnd(running).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(Bucket, TheBucketHasWhatTheServerHas) {
  Yard yard(Options({"--checkpoint_bucket", Place("lab")}));
  yard.Start();
  const std::string job = yard.Submit(Spec("small"));
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string newest = AwaitCopies(yard, job);
  const std::string table = yard.Cli({"checkpoints", "ls", job}).out;
  EXPECT_THAT(table, HasSubstr(newest));
  const std::string folder = absl::StrCat(newest.substr(Place("").size()), "/");
  std::set<std::string> kept;
  for (const nlohmann::json& checkpoint : yard.CliJson({"checkpoints", "ls", job})) {
    kept.insert(checkpoint.value("copy", ""));
  }
  EXPECT_TRUE(WaitUntil([&] {
    std::set<std::string> copies;
    for (const std::string& key : fake_.Keys("lab/checkpoints/1/")) {
      const std::vector<std::string> parts = absl::StrSplit(key, '/');
      copies.insert(Place(absl::StrCat("lab/checkpoints/1/", parts.at(3))));
    }
    return copies == kept;
  })) << "the copies of replaced checkpoints are gone";
  EXPECT_THAT(fake_.Keys(folder), Not(IsEmpty()));

  // A server that starts again knows what it has sent.
  const int puts = fake_.CountRequests(absl::StrCat("PUT ", folder));
  yard.KillServer();
  yard.StartServer();
  yard.WaitForWorkers(1);
  ASSERT_EQ(yard.WaitForEnd(yard.Submit(Spec("other"))).state(), v1::JOB_STATE_SUCCEEDED);
  AwaitCopies(yard, "jobs/2");
  EXPECT_EQ(fake_.CountRequests(absl::StrCat("PUT ", folder)), puts);

  EXPECT_EQ(yard.Cli({"rm", "1", "-y"}).exit_code, 0);
  EXPECT_TRUE(WaitUntil([&] { return fake_.Keys("lab/checkpoints/1/").empty(); }));
  EXPECT_THAT(fake_.Keys("lab/checkpoints/2/"), Not(IsEmpty()));
}

}  // namespace
}  // namespace trainyard::testing
