// Floods the server with logs and metrics while many watchers never read what they asked for, and
// some are dead. The server's memory stays bounded, and a job that has nothing to do with it trains
// on.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "tests/faults/report.h"
#include "tests/faults/witness.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kMemoryGrowthMaxMib = 256;
constexpr absl::Duration kListWithin = absl::Seconds(1);
constexpr int kEndless = 100'000;  // epochs

// The second job writes a log of so many bytes before it trains. The third writes so many metric
// points and then waits.
std::string Floods(int64_t log_bytes, int points) {
  return absl::StrCat(
      "if [ $job = 2 ]; then yes 'the same line again and again and again' | head -c ", log_bytes,
      "; fi\n",
      "if [ $job = 3 ]; then\n"
      "  awk 'BEGIN { for (i = 1; i <= ",
      points,
      "; ++i) printf \"{\\\"step\\\":%d,\\\"name\\\":\\\"train.loss\\\",\\\"value\\\":0.5,"
      "\\\"time\\\":1}\\n\", i }' >> $TRAINYARD_RUN_DIR/ranks/$TRAINYARD_RANK/metrics.jsonl\n"
      "  exec sleep 600\n"
      "fi\n");
}

int64_t ResidentMib(pid_t pid) {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or("");
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() == 3 && words[0] == "VmRSS:" && absl::SimpleAtoi(words[1], &kib)) {
      return kib / 1024;
    }
  }
  ADD_FAILURE() << status;
  return 0;
}

// Opens streams and never reads them. They end with this object.
class Deaf {
 public:
  explicit Deaf(const std::string& address) {
    auto channel = rpc::MakeChannel(address);
    EXPECT_TRUE(channel.ok()) << channel.status();
    jobs_ = v1::JobService::NewStub(*channel);
  }
  ~Deaf() {
    for (const auto& context : contexts_) context->TryCancel();
  }

  void FollowLog(const std::string& job) {
    v1::TailLogsRequest request;
    request.set_name(job);
    request.set_follow(true);
    logs_.push_back(jobs_->TailLogs(NewContext(), request));
  }
  void FollowMetrics(const std::string& job) {
    v1::WatchMetricsRequest request;
    request.set_name(job);
    request.set_follow(true);
    metrics_.push_back(jobs_->WatchMetrics(NewContext(), request));
  }
  void WatchJobs() { watches_.push_back(jobs_->WatchJobs(NewContext(), v1::WatchJobsRequest())); }

 private:
  grpc::ClientContext* NewContext() {
    contexts_.push_back(std::make_unique<grpc::ClientContext>());
    rpc::SetTimeout(*contexts_.back(), 10 * kPatience);
    return contexts_.back().get();
  }

  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::TailLogsResponse>>> logs_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchMetricsResponse>>> metrics_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>>> watches_;
};

absl::Duration ListOnce(Yard& yard) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, kPatience);
  v1::ListJobsResponse response;
  const absl::Duration begin = Clock::Real()->Uptime();
  const grpc::Status status = yard.jobs().ListJobs(&context, v1::ListJobsRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return Clock::Real()->Uptime() - begin;
}

TEST(Floods, LogsMetricsAndDeafWatchersLeaveMemoryBoundedAndOthersAlone) {
  FaultRow row({.fault = "floods, and watchers that never read",
                .injection = "one rank floods its log and one its metrics; streams are opened and "
                             "never read; clients are stopped",
                .expectation = "the server grows by less than 256 MiB; others are served and "
                               "train on; all bytes and points arrive"});
  const int64_t log_bytes = int64_t{1} << Scaled(23, 27);
  const int points = Scaled(30'000, 500'000);
  const int watchers = Scaled(60, 480);  // a user may have 500
  constexpr int kDead = 4;
  const Witness witness(Floods(log_bytes, points));
  Yard::Options options;
  options.cpu_devices = 3;
  options.worker_flags = {"--share_cpus", "--trainer", witness.trainer()};
  Yard yard(options);
  yard.Start();
  const std::string canary = yard.Submit(SmallSpec("canary", 1, kEndless, 2000));
  ASSERT_TRUE(yard.WaitForStep(canary, 20));
  const int64_t memory = ResidentMib(yard.server()->pid());

  const std::string log = yard.Submit(SmallSpec("log", 1, kEndless, 2000));
  const std::string metrics = yard.Submit(SmallSpec("metrics", 1, 1, 500));
  Deaf deaf(yard.address());
  for (int i = 0; i < watchers; i += 3) {
    deaf.FollowLog(log);
    deaf.FollowMetrics(metrics);
    deaf.WatchJobs();
  }
  std::vector<std::unique_ptr<Process>> dead;
  for (int i = 0; i < kDead; ++i) {
    Process::Options client;
    client.args = {Yard::Binary("trainyard"), "--server", yard.address(), "logs", log, "-f"};
    client.environment = {{"HOME", yard.File("")}};
    auto process = Process::Start(std::move(client));
    ASSERT_TRUE(process.ok()) << process.status();
    (*process)->Signal(SIGSTOP);
    dead.push_back(*std::move(process));
  }

  const std::string stored =
      JoinPath(yard.server_state_dir(), absl::StrCat("logs/", log.substr(5), "/1/0.log"));
  std::vector<absl::Duration> lists;
  int64_t peak = memory;
  const int64_t step = yard.GetJob(canary).progress().step();
  const auto is_over = [&] {
    lists.push_back(ListOnce(yard));
    peak = std::max(peak, ResidentMib(yard.server()->pid()));
    return FileSize(stored).value_or(0) >= log_bytes &&
           yard.GetJob(canary).progress().step() >= step + 100;
  };
  ASSERT_TRUE(WaitUntil(is_over, 4 * kPatience));
  EXPECT_TRUE(yard.WaitForStep(metrics, points)) << "metric points are missing";
  is_over();
  std::sort(lists.begin(), lists.end());
  const absl::Duration p99 = lists[lists.size() * 99 / 100];
  EXPECT_LT(p99, kListWithin);
  EXPECT_LT(peak - memory, kMemoryGrowthMaxMib);
  EXPECT_EQ(yard.GetJob(canary).attempt(), 1);
  row.Count("MiB of log", log_bytes >> 20);
  row.Count("points", points);
  row.Count("streams", watchers);
  row.Count("stopped clients", kDead);
  row.Count("MiB more memory", peak - memory);
  row.Longest("p99 of a list", p99);
  row.Survived();
}

// Returns what the files of a folder take, as long as they lie there.
int64_t BytesUnder(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code gone;
  for (std::filesystem::recursive_directory_iterator it(folder, gone), end; !gone && it != end;
       it.increment(gone)) {
    bytes += FileSize(it->path().string()).value_or(0);
  }
  return bytes;
}

TEST(Floods, AProgramThatWritesTenGigabytesFillsNoDisk) {
  LONG_LANE_ONLY();
  FaultRow row({.fault = "floods, and watchers that never read",
                .injection = "a program writes 10 GiB to its output, and then a metric point",
                .expectation = "the log ends with a line that says so; no disk holds more than a "
                               "part of it; the job succeeds, and its point arrives"});
  constexpr int64_t kOutputGib = 10;
  constexpr int64_t kLogMaxMib = 257;
  constexpr int64_t kOnWorkerMaxMib = 300;
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(absl::StrCat(
      "name: flood\ndevices: 0\nprogram:\n  script: |\n",
      "    yes 'the same line again and again and again' | head -c ", kOutputGib, "G\n",
      "    echo '{\"step\":1,\"name\":\"loss\",\"value\":0.5}' >> "
      "$TRAINYARD_RUN_DIR/metrics.jsonl\n"));
  int64_t on_worker = 0;
  int64_t server_mib = 0;
  const bool is_over = WaitUntil(
      [&] {
        on_worker = std::max(on_worker, BytesUnder(yard.WorkerStateDir()));
        server_mib = std::max(server_mib, ResidentMib(yard.server()->pid()));
        return yard.GetJob(job).state() == v1::JOB_STATE_SUCCEEDED;
      },
      10 * kPatience);
  ASSERT_TRUE(is_over) << yard.GetJob(job).ShortDebugString();
  const std::string stored =
      JoinPath(yard.server_state_dir(), absl::StrCat("logs/", job.substr(5), "/1/0.log"));
  const int64_t kept = FileSize(stored).value_or(0);
  EXPECT_GT(kept, int64_t{200} << 20);
  EXPECT_LT(kept, kLogMaxMib << 20);
  EXPECT_LT(on_worker, kOnWorkerMaxMib << 20);
  EXPECT_EQ(yard.Metrics(job, "loss").size(), 1u);
  const ProcessResult log = yard.Cli({"logs", job, "--tail", "1"});
  EXPECT_NE(log.out.find("this log has reached the limit"), std::string::npos) << log.out;
  row.Count("GiB of output", kOutputGib);
  row.Count("MiB kept", kept >> 20);
  row.Count("MiB at most on the worker", on_worker >> 20);
  row.Count("MiB of the server's memory", server_mib);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
