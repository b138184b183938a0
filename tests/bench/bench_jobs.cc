// Measures how fast small jobs go through real daemons: server, worker, and a supervisor and a
// trainer for each job. Prints jobs a second from the first submission to the last end, the time
// from a submission to the supervisor and to the trainer on an idle pool, and for how long a device
// that one job has left is idle before the next one's trainer runs there.
//
// usage: bench_jobs [jobs] [folder]; the folder lies on the disk that is to be measured.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "trainyard/v1/fleet.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard {
namespace {

constexpr int kSubmitters = 4;
constexpr absl::Duration kPatience = absl::Minutes(5);

std::string Binary(const std::string& name) {
  return testing::BinaryPath(name);
}

int64_t NowMicros() {
  return absl::ToUnixMicros(Clock::Real()->Now());
}

// The times that a trainer recorded for one job.
struct Stamp {
  // By the clock of the file system, which advances in steps of some milliseconds.
  int64_t supervisor_us = 0;
  int64_t begin_us = 0;
  int64_t end_us = 0;
};

// Runs a server and a worker in a folder of their own.
class Pool {
 public:
  Pool(const std::string& trainer, int devices) {
    setenv("BENCH_STAMPS", dir_.File("stamps").c_str(), 1);
    const std::string address = absl::StrCat("unix:", dir_.File("s"));
    server_ = Start(
        {Binary("trainyard-server"), "--state_dir", dir_.File("server"), "--listen", address});
    const auto channel = rpc::MakeChannel(address);
    TY_CHECK_OK(channel.status());
    jobs_ = v1::JobService::NewStub(*channel);
    fleet_ = v1::FleetService::NewStub(*channel);
    AwaitIdle();  // the server answers
    worker_ = Start({Binary("trainyard-worker"), "--server", address, "--state_dir",
                     dir_.File("worker"), "--name", "bench", "--trainer", trainer, "--cpu_devices",
                     absl::StrCat(devices), "--share_cpus"});
    Await([this] {
      grpc::ClientContext context;
      v1::ListWorkersResponse workers;
      context.set_wait_for_ready(true);
      return fleet_->ListWorkers(&context, {}, &workers).ok() && workers.workers_size() == 1;
    });
  }

  // The smallest job there is.
  std::string Submit() {
    v1::CreateJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name("noop");
    spec.mutable_model()->mutable_mlp()->add_hidden(8);
    spec.mutable_data()->set_dataset("glyphs");
    spec.mutable_data()->set_train_size(64);
    spec.mutable_data()->set_test_size(64);
    spec.mutable_train()->set_steps(1);
    spec.mutable_train()->set_global_batch(64);
    spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
    grpc::ClientContext context;
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(&context, request, &job);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.error_message().c_str());
    TY_CHECK(status.ok());
    return job.name();
  }

  void AwaitIdle() {
    Await([this] {
      grpc::ClientContext context;
      v1::ListJobsRequest request;
      request.set_page_size(1);
      for (const v1::JobState state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING,
                                       v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING}) {
        request.add_states(state);
      }
      context.set_wait_for_ready(true);
      v1::ListJobsResponse jobs;
      return jobs_->ListJobs(&context, request, &jobs).ok() && jobs.jobs_size() == 0;
    });
  }

  int64_t Failed() {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_page_size(1000);
    request.add_states(v1::JOB_STATE_FAILED);
    v1::ListJobsResponse jobs;
    return jobs_->ListJobs(&context, request, &jobs).ok() ? jobs.jobs_size() : -1;
  }

  std::map<std::string, Stamp> Stamps() const {
    std::map<std::string, Stamp> stamps;
    std::ifstream file(dir_.File("stamps"));
    std::string job;
    Stamp stamp;
    while (file >> job >> stamp.supervisor_us >> stamp.begin_us >> stamp.end_us) {
      stamps["jobs/" + job] = stamp;
    }
    return stamps;
  }

 private:
  std::unique_ptr<testing::Process> Start(std::vector<std::string> args) {
    testing::Process::Options options;
    options.stderr_path = dir_.File(absl::StrCat("log-", ++starts_));
    options.stdout_path = options.stderr_path + ".out";
    options.args = std::move(args);
    auto process = testing::Process::Start(std::move(options));
    TY_CHECK_OK(process.status());
    return *std::move(process);
  }

  void Await(const std::function<bool()>& condition) {
    TY_CHECK(testing::WaitUntil(condition, kPatience));
  }

  const testing::TempDir dir_;
  int starts_ = 0;
  std::unique_ptr<testing::Process> server_;
  std::unique_ptr<testing::Process> worker_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::FleetService::Stub> fleet_;
};

void PrintTimes(const char* what, std::vector<double> ms) {
  TY_CHECK(!ms.empty());
  std::sort(ms.begin(), ms.end());
  std::printf("%-52s %9.1f %9.1f\n", what, ms[ms.size() / 2], ms.back());
}

void Throughput(const char* what, const std::string& trainer, int devices, int jobs) {
  Pool pool(trainer, devices);
  const int64_t begin = NowMicros();
  std::atomic<int> next = 0;
  std::vector<std::thread> submitters;
  submitters.reserve(kSubmitters);
  for (int i = 0; i < kSubmitters; ++i) {
    submitters.emplace_back([&] {
      while (next.fetch_add(1) < jobs) pool.Submit();
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  const double submitted = static_cast<double>(NowMicros() - begin) / 1e6;
  pool.AwaitIdle();
  const double seconds = static_cast<double>(NowMicros() - begin) / 1e6;
  TY_CHECK(pool.Failed() == 0);
  std::printf("%-52s %9.1f %9s   (submitted in %.2f s)\n", what, jobs / seconds, "", submitted);
}

void Latency(int jobs) {
  Pool pool(Binary("noop_trainer"), 1);
  std::map<std::string, int64_t> submitted;
  for (int i = 0; i < jobs; ++i) {
    const int64_t begin = NowMicros();
    submitted[pool.Submit()] = begin;
    pool.AwaitIdle();
  }
  std::vector<double> supervisor, trainer;
  for (const auto& [job, stamp] : pool.Stamps()) {
    supervisor.push_back(static_cast<double>(stamp.supervisor_us - submitted.at(job)) / 1e3);
    trainer.push_back(static_cast<double>(stamp.begin_us - submitted.at(job)) / 1e3);
  }
  PrintTimes("submit to supervisor, idle pool (ms: p50, max)", supervisor);
  PrintTimes("submit to trainer, idle pool (ms: p50, max)", trainer);
}

void HandOver(int jobs) {
  Pool pool(Binary("noop_trainer"), 1);
  for (int i = 0; i < jobs; ++i) pool.Submit();
  pool.AwaitIdle();
  std::vector<Stamp> stamps;
  for (const auto& [job, stamp] : pool.Stamps()) stamps.push_back(stamp);
  std::sort(stamps.begin(), stamps.end(),
            [](const Stamp& a, const Stamp& b) { return a.begin_us < b.begin_us; });
  std::vector<double> idle;
  for (size_t i = 1; i < stamps.size(); ++i) {
    idle.push_back(static_cast<double>(stamps[i].begin_us - stamps[i - 1].end_us) / 1e3);
  }
  PrintTimes("hand-over of one device, end to start (ms: p50, max)", idle);
}

int Main(int argc, char** argv) {
  int jobs = 500;
  if (argc > 1 && !absl::SimpleAtoi(argv[1], &jobs)) jobs = 0;
  if (argc > 3 || jobs < 10) {
    std::fprintf(stderr, "usage: bench_jobs [jobs, at least 10] [folder]\n");
    return 2;
  }
  if (argc > 2) setenv("TMPDIR", argv[2], 1);
  (void)std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("%-52s %9s %9s\n", absl::StrCat(jobs, " jobs of one device").c_str(), "", "");
  Throughput("jobs/s, 8 devices, trainer that does nothing", Binary("noop_trainer"), 8, jobs);
  Throughput("jobs/s, 8 devices, real trainer, one step", Binary("trainyard-trainer"), 8, jobs / 5);
  Latency(jobs / 10);
  HandOver(jobs / 5);
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
