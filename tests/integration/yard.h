// A whole Trainyard on this machine, of the real binaries: server and worker with a state directory
// of their own, driven through the command-line client, as by its users, and killed when a test
// wants it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::testing {

// The longest wait for anything. It is generous, since machines are shared and sanitizers are slow.
inline constexpr absl::Duration kPatience = absl::Seconds(150);

class Yard {
 public:
  struct Options {
    int cpu_devices = 2;
    // Used instead of `cpu_devices` for unequal devices, in the form of the worker's flag.
    std::string cpu_layout;
    std::string dataset_dir;
    // The server's state directory. If it is empty, it is below the yard's own folder.
    std::string server_state_dir;
    std::vector<std::string> server_flags;
    // Added to the environment of the server.
    std::map<std::string, std::string> server_environment;
    std::vector<std::string> worker_flags;
    // Added to the environment of workers, and of all that they start.
    std::map<std::string, std::string> worker_environment;
  };

  // The options that one worker has beside those of all.
  struct WorkerOptions {
    // The namespace in which the worker and all that it starts run, or the test's own if negative.
    int network_namespace = -1;
    std::vector<std::string> flags;
    // The address under which the worker reaches the server. If it is empty, it is the server's
    // own.
    std::string server_address = {};
    // Variables that are added to those of all workers.
    std::map<std::string, std::string> environment = {};
  };

  explicit Yard(Options options);
  Yard() : Yard(Options{}) {}
  // Ends the daemons and every supervisor and rank that they left running.
  ~Yard();

  // From now on, runs another program in place of the one of that name, such as one of an older
  // version.
  void UseProgram(const std::string& name, const std::string& path) { programs_[name] = path; }

  // All of these fail the test if they do not succeed in time.
  void Start();
  void StartServer();
  // Starts the server and waits until it serves or has died. Returns true if it serves.
  bool LaunchServer();
  void StartWorker(const std::string& name = "alpha") { StartWorker(name, WorkerOptions{}); }
  void StartWorker(const std::string& name, const WorkerOptions& host);
  // Blocks until the server knows this number of workers. A job that is submitted earlier is placed
  // on those that have registered by then, and refused if it needs more.
  void WaitForWorkers(size_t count);
  void KillServer();
  void KillWorker(const std::string& name = "alpha");

  // `trainyard ARGS` against this server.
  ProcessResult Cli(const std::vector<std::string>& args, absl::Duration timeout = kPatience);
  // Does so with `-o json`, expects exit code 0, and returns the parsed output.
  nlohmann::json CliJson(std::vector<std::string> args);

  // Writes `yaml` to a file and submits it with these flags; the job's name, "jobs/1".
  std::string Submit(const std::string& yaml, const std::vector<std::string>& flags = {});
  // Blocks until the job has reported this step. Returns false if it ends before.
  bool WaitForStep(const std::string& job, int64_t step);
  // Blocks until the predicate holds for the job as the server shows it.
  bool WaitForJob(const std::string& job, const std::function<bool(const v1::Job&)>& predicate);
  v1::Job WaitForEnd(const std::string& job);
  v1::Job GetJob(const std::string& job);
  // Returns every metric point of the job in order of arrival.
  std::vector<v1::MetricPoint> Metrics(const std::string& job, const std::string& name);

  v1::JobService::Stub& jobs() { return *jobs_; }
  // Returns the channel to the server that was started last.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }
  std::string File(const std::string& name) const { return dir_.File(name); }
  const std::string& server_state_dir() const { return server_state_dir_; }
  std::string WorkerStateDir(const std::string& name = "alpha") const;
  // Returns the run directory of an attempt on a worker.
  std::string RunDir(const std::string& job, int attempt,
                     const std::string& worker = "alpha") const;
  // The pids in supervisor.json: the supervisor's and those of the ranks.
  nlohmann::json SupervisorRecord(const std::string& run_dir) const;
  Process* server() { return server_.get(); }
  Process* worker(const std::string& name = "alpha") { return workers_.at(name).get(); }
  static std::string Binary(const std::string& name);

 private:
  void KillLeftovers();
  std::string Program(const std::string& name) const;

  const Options options_;
  TempDir dir_;
  std::string server_state_dir_;
  std::string address_;
  std::unique_ptr<Process> server_;
  std::map<std::string, std::unique_ptr<Process>> workers_;
  std::shared_ptr<grpc::Channel> channel_;
  std::map<std::string, std::string> programs_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  int starts_ = 0;
  int specs_ = 0;
};

// A convnet on generated glyphs that trains for seconds: `train_size` samples a epoch.
std::string SmallSpec(const std::string& name, int devices, int epochs, int train_size,
                      const std::string& extra = "");

}  // namespace trainyard::testing
