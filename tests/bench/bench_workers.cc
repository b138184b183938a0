// Measures a server to which many workers belong: what they cost it while nothing happens, how long
// its users wait meanwhile, and how long it takes until all are back after it was killed and
// started again, as it is when it moves to another host with its volume.
//
//   bench_workers [--workers 1000] [--seconds 20] [--jobs 1000]
// The workers are links of real ones, each with a connection of its own; they have no devices and
// run nothing. `jobs` wait in the queue.
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/rpc/channel.h"
#include "tests/faults/crowd.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard {
namespace {

using testing::Crowd;
using testing::Yard;

constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr absl::Duration kBackMax = absl::Minutes(5);
constexpr int kLists = 400;
constexpr int64_t kTicksPerSecond = 100;

struct Arguments {
  int workers = 1000;
  int seconds = 20;
  int jobs = 1000;
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    int* number = flag == "--workers"   ? &arguments.workers
                  : flag == "--seconds" ? &arguments.seconds
                  : flag == "--jobs"    ? &arguments.jobs
                                        : nullptr;
    if (number == nullptr || !absl::SimpleAtoi(argv[i + 1], number) || *number < 1) return false;
  }
  return argc % 2 == 1;
}

// Returns the processor time of a process until now.
absl::Duration ProcessorTime(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  // The name of the program, in brackets, may have spaces.
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(std::min(stat.rfind(')') + 2, stat.size())), ' ');
  int64_t user = 0;
  int64_t system = 0;
  TY_CHECK(fields.size() > 12 && absl::SimpleAtoi(fields[11], &user) &&
           absl::SimpleAtoi(fields[12], &system));
  return absl::Seconds(1) * (user + system) / kTicksPerSecond;
}

int64_t ResidentMib(pid_t pid) {
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/statm")).value_or("");
  const std::vector<std::string> fields = absl::StrSplit(text, ' ');
  int64_t pages = 0;
  TY_CHECK(fields.size() > 1 && absl::SimpleAtoi(fields[1], &pages));
  return pages * 4096 >> 20;
}

absl::Duration TimeOf(Yard& yard) {
  v1::ListJobsRequest request;
  request.set_page_size(20);
  v1::ListJobsResponse response;
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCallTimeout);
  const absl::Duration begin = Clock::Real()->Uptime();
  TY_CHECK(yard.jobs().ListJobs(&context, request, &response).ok());
  return Clock::Real()->Uptime() - begin;
}

void PrintTimes(const char* what, std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  std::printf("%-34s median %s, p99 %s, of %zu\n", what,
              absl::FormatDuration(times[times.size() / 2]).c_str(),
              absl::FormatDuration(times[times.size() * 99 / 100]).c_str(), times.size());
}

void Submit(Yard& yard, int jobs) {
  for (int i = 0; i < jobs; ++i) {
    const v1::CreateJobRequest request = testing::WaitingJob(absl::StrCat("waits-", i));
    grpc::ClientContext context;
    rpc::SetTimeout(context, kCallTimeout);
    v1::Job job;
    TY_CHECK(yard.jobs().CreateJob(&context, request, &job).ok());
  }
}

void Measure(const Arguments& arguments) {
  Clock& clock = *Clock::Real();
  Yard yard;
  yard.StartServer();
  Submit(yard, arguments.jobs);
  const pid_t alone = yard.server()->pid();
  std::printf("%-34s %lld MiB\n", "memory of the server without workers",
              static_cast<long long>(ResidentMib(alone)));
  const absl::Duration begin = clock.Uptime();
  Crowd crowd(yard.address(), arguments.workers);
  const auto wait_for_all = [&](absl::Duration since) {
    return testing::WaitUntil([&] { return crowd.HeardSince(since) == arguments.workers; },
                              kBackMax);
  };
  TY_CHECK(wait_for_all(begin));
  std::printf("%-34s %s\n", "all have joined after",
              absl::FormatDuration(clock.Uptime() - begin).c_str());

  const absl::Duration used = ProcessorTime(alone);
  const absl::Duration steady = clock.Uptime();
  const absl::Duration end = steady + absl::Seconds(arguments.seconds);
  TY_CHECK(testing::WaitUntil([&] { return clock.Uptime() >= end; }, kBackMax));
  const double share = absl::FDivDuration(ProcessorTime(alone) - used, clock.Uptime() - steady);
  std::printf("%-34s %.1f %% of a processor, %lld MiB\n", "the server with all of them",
              100 * share, static_cast<long long>(ResidentMib(alone)));
  std::vector<absl::Duration> times;
  for (int i = 0; i < kLists; ++i) times.push_back(TimeOf(yard));
  PrintTimes("a list of 20 jobs", std::move(times));

  yard.KillServer();
  const absl::Duration killed = clock.Uptime();
  yard.StartServer();
  std::printf("%-34s %s\n", "it serves again after",
              absl::FormatDuration(clock.Uptime() - killed).c_str());
  TY_CHECK(wait_for_all(killed));
  std::printf("%-34s %s\n", "all are back after",
              absl::FormatDuration(clock.Uptime() - killed).c_str());
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  trainyard::Arguments arguments;
  if (!trainyard::Parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: bench_workers [--workers N] [--seconds S] [--jobs N]\n");
    return 2;
  }
  // Each of the workers would tell that it has joined.
  trainyard::InitLog("bench_workers", trainyard::LogLevel::kError, trainyard::LogFormat::kText);
  // Each worker has a connection, which the server's process inherits the room for.
  rlimit limit{};
  TY_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  TY_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::printf("%d workers, %d jobs that wait\n", arguments.workers, arguments.jobs);
  trainyard::Measure(arguments);
  return 0;
}
