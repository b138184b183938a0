// Fakes the part of the server that keeps sweeps. It decides nothing: a test says what the sweeps
// are.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "trainyard/v1/sweep_service.grpc.pb.h"

namespace trainyard::testing {

class FakeSweeps : public v1::SweepService::Service {
 public:
  // Stores a sweep, and returns its name. Its spec, title and numbers are those of `sweep`.
  std::string Add(v1::Sweep sweep);
  // Each call of GetSweep makes the next of these changes before it answers.
  void ChangeOnGet(std::function<void(v1::Sweep&)> change);
  // The next call of CreateSweep gives this answer.
  void RefuseNextCreate(const absl::Status& status);

  v1::CreateSweepRequest last_create();
  v1::StopSweepRequest last_stop();
  v1::ResumeSweepRequest last_resume();

  grpc::Status CreateSweep(grpc::ServerContext*, const v1::CreateSweepRequest*,
                           v1::Sweep*) override;
  grpc::Status GetSweep(grpc::ServerContext*, const v1::GetSweepRequest*, v1::Sweep*) override;
  grpc::Status ListSweeps(grpc::ServerContext*, const v1::ListSweepsRequest*,
                          v1::ListSweepsResponse*) override;
  grpc::Status StopSweep(grpc::ServerContext*, const v1::StopSweepRequest*, v1::Sweep*) override;
  grpc::Status ResumeSweep(grpc::ServerContext*, const v1::ResumeSweepRequest*,
                           v1::Sweep*) override;
  grpc::Status DeleteSweep(grpc::ServerContext*, const v1::DeleteSweepRequest*,
                           v1::DeleteSweepResponse*) override;

 private:
  // Returns null if there is none. It is called under the lock.
  v1::Sweep* Find(const std::string& name);

  std::mutex mutex_;
  std::vector<v1::Sweep> sweeps_;
  int added_ = 0;
  std::vector<std::function<void(v1::Sweep&)>> changes_;
  absl::Status refusal_;
  v1::CreateSweepRequest last_create_;
  v1::StopSweepRequest last_stop_;
  v1::ResumeSweepRequest last_resume_;
};

}  // namespace trainyard::testing
