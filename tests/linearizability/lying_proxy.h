// A server between the users and the real one, which breaks a promise if it is told to. The checker
// must notice.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::linearizability {

enum class Lie {
  kNone,
  kAcknowledgesEarly,  // answers to cancel, suspend and resume, and does it some calls later
  kReadsStale,         // answers all reads of a job with the first one
  kSubmitsTwice,       // sends every submission on twice, under two request ids
  kLosesSubmissions,   // deletes some of the jobs that it has acknowledged
};

// The proxy. It is thread-safe, and serves until it is destroyed.
class LyingProxy : public v1::JobService::Service {
 public:
  LyingProxy(Lie lie, const std::string& address, const std::string& server_address);
  ~LyingProxy() override;

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::Job* response) override;
  grpc::Status CloneJob(grpc::ServerContext* context, const v1::CloneJobRequest* request,
                        v1::CloneJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status SuspendJob(grpc::ServerContext* context, const v1::SuspendJobRequest* request,
                          v1::Job* response) override;
  grpc::Status ResumeJob(grpc::ServerContext* context, const v1::ResumeJobRequest* request,
                         v1::Job* response) override;
  grpc::Status DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse* response) override;

 private:
  // Does what was acknowledged early, when its time has come.
  void CountCall();
  // Returns true if the job is in `from`; then it answers as if it were in `to`, and `later` is
  // done some calls later.
  bool Pretend(const std::string& name, v1::JobState from, v1::JobState to, v1::Job& response,
               std::function<void()> later);
  void Remove(const std::string& name);

  const Lie lie_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  absl::Mutex mutex_;
  int creates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, v1::Job> first_reads_ ABSL_GUARDED_BY(mutex_);
  struct Delayed {
    int calls_left = 0;
    std::function<void()> work;
  };
  std::list<Delayed> delayed_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainyard::linearizability
