// Sends bytes to each method of each service of a server that has a worker and jobs.
#include "common/base/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/service.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::rpc_bytes {
namespace {

constexpr size_t kCallsMax = 8;

// Makes jobs/1, which has a place on lab-1 and reports a step, and jobs/2, which waits.
void Fill(Service& service) {
  const std::string session = service.Register();
  for (const char* name : {"first", "second"}) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Service::Spec(name);
    request.mutable_spec()->mutable_devices()->set_count(2);
    v1::Job job;
    TY_CHECK(CallHandler(service.jobs(), &rpc::JobServiceImpl::CreateJob, request, job).ok());
  }
  v1::SyncWorkerRequest sync;
  sync.set_session(session);
  sync.set_sequence(1);
  v1::SyncWorkerResponse desired;
  TY_CHECK(CallHandler(service.agents(), &rpc::AgentServiceImpl::SyncWorker, sync, desired).ok());
  TY_CHECK(desired.attempts_size() == 1);
  sync.set_sequence(2);
  sync.set_desired_revision(desired.desired_revision());
  v1::ObservedAttempt* attempt = sync.add_attempts();
  attempt->set_attempt(desired.attempts(0).attempt());
  attempt->set_fencing_token(desired.attempts(0).fencing_token());
  attempt->set_state(v1::OBSERVED_STATE_RUNNING);
  attempt->mutable_progress()->set_step(7);
  desired.Clear();
  sync.set_desired_revision(0);  // which is answered at once
  TY_CHECK(CallHandler(service.agents(), &rpc::AgentServiceImpl::SyncWorker, sync, desired).ok());
}

// Each call is the number of its method, the length of its request in two bytes, and the request.
// Numbers from 128 on are streams.
void Run(absl::string_view bytes) {
  Input input(bytes);
  Service service;
  Fill(service);
  for (size_t i = 0; i < kCallsMax && !input.empty(); ++i) {
    const uint8_t number = input.Byte();
    const size_t size = input.Byte() + 256 * input.Below(64);
    const absl::string_view request = input.Take(size);
    if (number < 128) {
      (void)service.CallUnary(number, request);
    } else {
      (void)service.CallStream(number - 128u, request);
    }
  }
  (void)service.Snapshot();
}

const Registration kTarget({.name = "rpc_bytes",
                            .run = Run,
                            .fixed_bytes = kServiceBytes + kMessageBytes,
                            .is_slow = true});

}  // namespace
}  // namespace trainyard::fuzz::rpc_bytes
