// Concurrent users of a real server, who write down what they do and what they see.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/linearizability/history.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::linearizability {

// Returns the time by CLOCK_MONOTONIC in nanoseconds.
int64_t Now();

// Returns a stub with a channel of its own.
std::unique_ptr<v1::JobService::Stub> MakeStub(const std::string& address);

// Returns what a user can tell of the job.
Sighting SightingOf(const v1::Job& job);

// Collects the operations of all users. Thread-safe.
class Recorder {
 public:
  void Add(Operation operation);
  History Take();
  // Counts the calls that users have begun, which is a clock for those who disturb them.
  void CountCall() { ++calls_; }
  int64_t calls() const { return calls_; }
  // Returns the number of a job that was seen lately, or of the next one; 0 if none was seen.
  int64_t RecentJob(std::mt19937_64& random);

 private:
  std::atomic<int64_t> calls_ = 0;
  absl::Mutex mutex_;
  History history_ ABSL_GUARDED_BY(mutex_);
  int64_t newest_job_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One user, who does one thing after the other. A thread runs it. The recorder is borrowed.
class User {
 public:
  // `run_percent` is the share of submissions that can be placed.
  User(Recorder& recorder, const std::string& address, int number, uint64_t seed, int run_percent);

  // Does that many things, drawn at random.
  void Act(int things);
  // Lists all jobs, and returns them.
  std::vector<Sighting> List();

 private:
  void Submit(Verb verb);
  void Create(Operation& operation, bool runs);
  void Clone(Operation& operation);
  void Change(Verb verb);
  void Get();
  // Makes the call, and notes its times and its answer.
  template <typename Call>
  void Do(Operation& operation, const Call& call);

  Recorder& recorder_;
  const int number_;
  const int run_percent_;
  std::mt19937_64 random_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  int submissions_ = 0;
};

// Watches all jobs, and resumes after the last revision whenever the connection breaks. A thread
// runs it. The recorder is borrowed.
class Watcher {
 public:
  Watcher(Recorder& recorder, const std::string& address, int number);

  void Run();
  // Ends Run. It may be called from any thread.
  void Stop();
  // Returns true if the watch has shown the jobs as they are in `list`, or later.
  bool HasSeen(const std::vector<Sighting>& list);

 private:
  Recorder& recorder_;
  const int number_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> revisions_ ABSL_GUARDED_BY(mutex_);  // by job
};

}  // namespace trainyard::linearizability
