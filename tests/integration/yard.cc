// Starts real servers and workers in folders of a test, and ends them with it.
#include "tests/integration/yard.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "common/rpc/channel.h"
#include "tests/testing/paths.h"
#include "tests/testing/wait.h"
#include "worker/run_dir/records.h"

namespace trainyard::testing {
namespace {

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace

std::string Yard::Binary(const std::string& name) {
  return testing::BinaryPath(name);
}

std::string Yard::Program(const std::string& name) const {
  const auto found = programs_.find(name);
  return found == programs_.end() ? Binary(name) : found->second;
}

Yard::Yard(Options options) : options_(std::move(options)) {
  server_state_dir_ =
      options_.server_state_dir.empty() ? dir_.File("server") : options_.server_state_dir;
  address_ = absl::StrCat("unix:", dir_.File("server.sock"));
}

Yard::~Yard() {
  for (auto& [name, worker] : workers_) worker.reset();
  KillLeftovers();
  server_.reset();
}

void Yard::KillLeftovers() {
  // Supervisors outlive their worker on purpose; the test ends those of its own run directories.
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(dir_.path(), error), end;
       !error && it != end; it.increment(error)) {
    if (it->path().filename() != "supervisor.json") continue;
    const std::string run_dir = it->path().parent_path().string();
    if (FileExists(JoinPath(run_dir, "exit.json"))) continue;
    const auto record = run_dir::ReadSupervisorRecord(run_dir::RunDir(run_dir));
    if (record.ok()) kill(static_cast<pid_t>(record->pid), SIGKILL);
  }
  // The worker, which is gone, would have ended the processes that programs have started.
  for (const ProcessInfo& process : ListProcesses()) {
    const std::string attempt = ProcessVariable(process.pid, "TRAINYARD_ATTEMPT_DIR");
    if (absl::StartsWith(attempt, dir_.path())) kill(static_cast<pid_t>(process.pid), SIGKILL);
  }
}

void Yard::Start() {
  StartServer();
  StartWorker();
}

bool Yard::LaunchServer() {
  Process::Options options;
  options.args = {Program("trainyard-server"), "--state_dir", server_state_dir_, "--listen",
                  address_};
  options.args.insert(options.args.end(), options_.server_flags.begin(),
                      options_.server_flags.end());
  options.environment = options_.server_environment;
  options.stderr_path = dir_.File(absl::StrCat("server-", ++starts_, ".log"));
  // A server that was killed has left the file that says where it listens.
  const std::string ready = JoinPath(server_state_dir_, "ready");
  unlink(ready.c_str());
  auto process = Process::Start(std::move(options));
  if (!process.ok()) {
    ADD_FAILURE() << process.status();
    return false;
  }
  server_ = *std::move(process);
  // A channel of its own for each server: one to the server before may not have noticed its end.
  const auto channel = rpc::MakeChannel(address_);
  EXPECT_TRUE(channel.ok()) << channel.status();
  channel_ = *channel;
  jobs_ = v1::JobService::NewStub(channel_);
  EXPECT_TRUE(WaitUntil([&] { return FileExists(ready) || !server_->running(); }, kPatience));
  return server_->running();
}

void Yard::StartServer() {
  ASSERT_TRUE(LaunchServer()) << server_->Err();
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::SetTimeout(context, kPatience);
  v1::ListJobsResponse response;
  const grpc::Status status = jobs_->ListJobs(&context, v1::ListJobsRequest(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message() << "\n" << server_->Err();
}

std::string Yard::WorkerStateDir(const std::string& name) const {
  return dir_.File(absl::StrCat("worker-", name));
}

void Yard::StartWorker(const std::string& name, const WorkerOptions& host) {
  Process::Options options;
  options.args = {
      Program("trainyard-worker"),
      "--server",
      host.server_address.empty() ? address_ : host.server_address,
      "--state_dir",
      WorkerStateDir(name),
      "--name",
      name,
      "--cpu_devices",
      options_.cpu_layout.empty() ? absl::StrCat(options_.cpu_devices) : options_.cpu_layout};
  if (options_.cpu_layout.empty()) {
    options.args.insert(options.args.end(), {"--threads_per_device", "1"});
  }
  if (!options_.dataset_dir.empty()) {
    options.args.insert(options.args.end(), {"--dataset_dir", options_.dataset_dir});
  }
  options.args.insert(options.args.end(), options_.worker_flags.begin(),
                      options_.worker_flags.end());
  options.args.insert(options.args.end(), host.flags.begin(), host.flags.end());
  options.environment = options_.worker_environment;
  options.environment.insert(host.environment.begin(), host.environment.end());
  options.network_namespace = host.network_namespace;
  options.stderr_path = dir_.File(absl::StrCat("worker-", name, "-", ++starts_, ".log"));
  auto process = Process::Start(std::move(options));
  ASSERT_TRUE(process.ok()) << process.status();
  workers_[name] = *std::move(process);
}

void Yard::WaitForWorkers(size_t count) {
  ASSERT_TRUE(WaitUntil([&] { return CliJson({"workers", "ls"}).size() == count; }, kPatience));
}

void Yard::KillServer() {
  server_->Signal(SIGKILL);
  ASSERT_TRUE(server_->Wait(kPatience).ok());
}

void Yard::KillWorker(const std::string& name) {
  workers_[name]->Signal(SIGKILL);
  ASSERT_TRUE(workers_[name]->Wait(kPatience).ok());
}

ProcessResult Yard::Cli(const std::vector<std::string>& args, absl::Duration timeout) {
  Process::Options options;
  options.args = {Program("trainyard"), "--server", address_};
  options.args.insert(options.args.end(), args.begin(), args.end());
  options.environment = {{"HOME", dir_.path()}, {"NO_COLOR", "1"}};
  auto result = RunProcess(std::move(options), dir_.path(), timeout);
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    return ProcessResult();
  }
  return *std::move(result);
}

nlohmann::json Yard::CliJson(std::vector<std::string> args) {
  args.insert(args.end(), {"-o", "json"});
  const ProcessResult result = Cli(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

std::string Yard::Submit(const std::string& yaml, const std::vector<std::string>& flags) {
  const std::string path = dir_.Write(absl::StrCat("spec-", ++specs_, ".yaml"), yaml);
  std::vector<std::string> args = {"submit", path, "-o", "name"};
  args.insert(args.end(), flags.begin(), flags.end());
  const ProcessResult result = Cli(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return std::string(absl::StripAsciiWhitespace(result.out));
}

bool Yard::WaitForStep(const std::string& job, int64_t step) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::SetTimeout(context, kPatience);
  v1::WatchMetricsRequest request;
  request.set_name(job);
  request.set_follow(true);
  const auto stream = jobs_->WatchMetrics(&context, request);
  v1::WatchMetricsResponse response;
  while (stream->Read(&response)) {
    for (const v1::MetricPoint& point : response.points()) {
      if (point.step() >= step) {
        context.TryCancel();
        return true;
      }
    }
  }
  return false;
}

bool Yard::WaitForJob(const std::string& job,
                      const std::function<bool(const v1::Job&)>& predicate) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::SetTimeout(context, kPatience);
  v1::WatchJobsRequest request;
  request.add_names(job);
  const auto stream = jobs_->WatchJobs(&context, request);
  v1::WatchJobsResponse response;
  while (stream->Read(&response)) {
    if (predicate(response.job())) {
      context.TryCancel();
      return true;
    }
  }
  return false;
}

v1::Job Yard::WaitForEnd(const std::string& job) {
  v1::Job last;
  EXPECT_TRUE(WaitForJob(job,
                         [&last](const v1::Job& seen) {
                           last = seen;
                           return IsFinal(seen.state());
                         }))
      << "the job did not end: " << last.ShortDebugString();
  return last;
}

v1::Job Yard::GetJob(const std::string& job) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::SetTimeout(context, kPatience);
  v1::GetJobRequest request;
  request.set_name(job);
  v1::Job response;
  const grpc::Status status = jobs_->GetJob(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

std::vector<v1::MetricPoint> Yard::Metrics(const std::string& job, const std::string& name) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::SetTimeout(context, kPatience);
  v1::WatchMetricsRequest request;
  request.set_name(job);
  request.add_metrics(name);
  const auto stream = jobs_->WatchMetrics(&context, request);
  std::vector<v1::MetricPoint> points;
  v1::WatchMetricsResponse response;
  while (stream->Read(&response)) {
    points.insert(points.end(), response.points().begin(), response.points().end());
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return points;
}

std::string Yard::RunDir(const std::string& job, int attempt, const std::string& worker) const {
  absl::string_view number = job;
  absl::ConsumePrefix(&number, "jobs/");
  return JoinPath(WorkerStateDir(worker), absl::StrCat("attempts/", number, "/", attempt));
}

nlohmann::json Yard::SupervisorRecord(const std::string& run_dir) const {
  const auto text = ReadFile(JoinPath(run_dir, "supervisor.json"));
  return nlohmann::json::parse(text.value_or("{}"), nullptr, /*allow_exceptions=*/false);
}

std::string SmallSpec(const std::string& name, int devices, int epochs, int train_size,
                      const std::string& extra) {
  return absl::StrCat("name: ", name, R"(
model: {convnet: {channels: [16, 32]}}
data: {dataset: glyphs, train_size: )",
                      train_size, R"(, test_size: 500}
train: {epochs: )",
                      epochs, R"(, global_batch: 50, seed: 3}
optimizer: {sgd: {lr: 0.05, momentum: 0.9, nesterov: true}}
devices: )",
                      devices, "\n", extra);
}

}  // namespace trainyard::testing
