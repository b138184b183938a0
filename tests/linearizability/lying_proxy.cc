// Forwards calls, each on a thread of the server, except for what the lie changes.
#include "tests/linearizability/lying_proxy.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/linearizability/users.h"

namespace trainyard::linearizability {
namespace {

// Acknowledged changes are made this many calls later.
constexpr int kDelayCalls = 5;
// One submission of so many is lost.
constexpr int kLostEvery = 3;

std::unique_ptr<grpc::Server> Serve(const std::string& address, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  auto server = builder.BuildAndStart();
  TY_CHECK(server != nullptr);
  return server;
}

template <typename Method, typename Request, typename Response>
grpc::Status Forward(v1::JobService::Stub& stub, Method method, const Request& request,
                     Response& response) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  return (stub.*method)(&context, request, &response);
}

using Stub = v1::JobService::Stub;

}  // namespace

LyingProxy::LyingProxy(Lie lie, const std::string& address, const std::string& server_address)
    : lie_(lie), stub_(MakeStub(server_address)), server_(Serve(address, this)) {}

LyingProxy::~LyingProxy() {
  server_->Shutdown();
}

void LyingProxy::CountCall() {
  std::vector<std::function<void()>> due;
  {
    const absl::MutexLock lock(&mutex_);
    for (auto it = delayed_.begin(); it != delayed_.end();) {
      if (--it->calls_left > 0) {
        ++it;
        continue;
      }
      due.push_back(std::move(it->work));
      it = delayed_.erase(it);
    }
  }
  for (const auto& work : due) work();
}

bool LyingProxy::Pretend(const std::string& name, v1::JobState from, v1::JobState to,
                         v1::Job& response, std::function<void()> later) {
  if (lie_ != Lie::kAcknowledgesEarly) return false;
  v1::GetJobRequest get;
  get.set_name(name);
  if (!Forward(*stub_, &Stub::GetJob, get, response).ok() || response.state() != from) return false;
  int64_t revision = 0;
  TY_CHECK(absl::SimpleAtoi(response.etag(), &revision));
  response.set_state(to);
  response.set_etag(absl::StrCat(revision + 1));
  const absl::MutexLock lock(&mutex_);
  delayed_.push_back({kDelayCalls, std::move(later)});
  return true;
}

void LyingProxy::Remove(const std::string& name) {
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  v1::Job job;
  Forward(*stub_, &Stub::CancelJob, cancel, job);
  v1::DeleteJobRequest remove;
  remove.set_name(name);
  v1::DeleteJobResponse removed;
  Forward(*stub_, &Stub::DeleteJob, remove, removed);
}

grpc::Status LyingProxy::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                   v1::Job* response) {
  CountCall();
  const grpc::Status status = Forward(*stub_, &Stub::CreateJob, *request, *response);
  if (lie_ == Lie::kSubmitsTwice) {
    v1::CreateJobRequest again = *request;
    again.set_request_id(absl::StrCat(request->request_id(), "-again"));
    v1::Job job;
    Forward(*stub_, &Stub::CreateJob, again, job);
  }
  if (lie_ == Lie::kLosesSubmissions) {
    bool is_lost = false;
    {
      const absl::MutexLock lock(&mutex_);
      is_lost = ++creates_ % kLostEvery == 0;
    }
    if (is_lost) Remove(response->name());
  }
  return status;
}

grpc::Status LyingProxy::CloneJob(grpc::ServerContext*, const v1::CloneJobRequest* request,
                                  v1::CloneJobResponse* response) {
  CountCall();
  return Forward(*stub_, &Stub::CloneJob, *request, *response);
}

grpc::Status LyingProxy::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                v1::Job* response) {
  CountCall();
  const grpc::Status status = Forward(*stub_, &Stub::GetJob, *request, *response);
  if (lie_ == Lie::kReadsStale && status.ok()) {
    const absl::MutexLock lock(&mutex_);
    *response = first_reads_.emplace(request->name(), *response).first->second;
  }
  return status;
}

grpc::Status LyingProxy::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                  v1::ListJobsResponse* response) {
  CountCall();
  return Forward(*stub_, &Stub::ListJobs, *request, *response);
}

grpc::Status LyingProxy::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                   v1::Job* response) {
  CountCall();
  const auto later = [this, copy = *request] {
    v1::Job job;
    Forward(*stub_, &Stub::CancelJob, copy, job);
  };
  if (Pretend(request->name(), v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, *response, later)) {
    return grpc::Status::OK;
  }
  return Forward(*stub_, &Stub::CancelJob, *request, *response);
}

grpc::Status LyingProxy::SuspendJob(grpc::ServerContext*, const v1::SuspendJobRequest* request,
                                    v1::Job* response) {
  CountCall();
  const auto later = [this, copy = *request] {
    v1::Job job;
    Forward(*stub_, &Stub::SuspendJob, copy, job);
  };
  if (Pretend(request->name(), v1::JOB_STATE_QUEUED, v1::JOB_STATE_SUSPENDED, *response, later)) {
    return grpc::Status::OK;
  }
  return Forward(*stub_, &Stub::SuspendJob, *request, *response);
}

grpc::Status LyingProxy::ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request,
                                   v1::Job* response) {
  CountCall();
  const auto later = [this, copy = *request] {
    v1::Job job;
    Forward(*stub_, &Stub::ResumeJob, copy, job);
  };
  if (Pretend(request->name(), v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_QUEUED, *response, later)) {
    return grpc::Status::OK;
  }
  return Forward(*stub_, &Stub::ResumeJob, *request, *response);
}

grpc::Status LyingProxy::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                   v1::DeleteJobResponse* response) {
  CountCall();
  return Forward(*stub_, &Stub::DeleteJob, *request, *response);
}

}  // namespace trainyard::linearizability
