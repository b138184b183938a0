// Implements the fake sweeps: they are kept in a list in memory, under one lock.
#include "tests/unit/client/fake_sweeps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/rpc/status.h"

namespace trainyard::testing {
namespace {

grpc::Status NoSuchSweep(const std::string& name) {
  return rpc::ToGrpcStatus(
      MakeError(absl::StatusCode::kNotFound, "SWEEP_NOT_FOUND",
                absl::StrCat("there is no sweep '", name, "'; `trainyard sweep ls` lists them")));
}

}  // namespace

std::string FakeSweeps::Add(v1::Sweep sweep) {
  const std::lock_guard lock(mutex_);
  sweep.set_name(absl::StrCat("sweeps/", ++added_));
  sweeps_.push_back(std::move(sweep));
  return sweeps_.back().name();
}

void FakeSweeps::ChangeOnGet(std::function<void(v1::Sweep&)> change) {
  const std::lock_guard lock(mutex_);
  changes_.push_back(std::move(change));
}

void FakeSweeps::RefuseNextCreate(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  refusal_ = status;
}

v1::CreateSweepRequest FakeSweeps::last_create() {
  const std::lock_guard lock(mutex_);
  return last_create_;
}

v1::StopSweepRequest FakeSweeps::last_stop() {
  const std::lock_guard lock(mutex_);
  return last_stop_;
}

v1::ResumeSweepRequest FakeSweeps::last_resume() {
  const std::lock_guard lock(mutex_);
  return last_resume_;
}

v1::Sweep* FakeSweeps::Find(const std::string& name) {
  const auto found = std::find_if(sweeps_.begin(), sweeps_.end(),
                                  [&](const v1::Sweep& sweep) { return sweep.name() == name; });
  return found == sweeps_.end() ? nullptr : &*found;
}

grpc::Status FakeSweeps::CreateSweep(grpc::ServerContext*, const v1::CreateSweepRequest* request,
                                     v1::Sweep* response) {
  {
    const std::lock_guard lock(mutex_);
    last_create_ = *request;
    const absl::Status refusal = std::exchange(refusal_, absl::OkStatus());
    if (!refusal.ok()) return rpc::ToGrpcStatus(refusal);
  }
  v1::Sweep sweep;
  sweep.set_title(request->spec().name());
  sweep.set_user("anna");
  sweep.set_state(v1::SWEEP_STATE_RUNNING);
  *sweep.mutable_spec() = request->spec();
  sweep.set_trials_total(request->spec().sweep().trials());
  sweep.set_concurrent(2);
  sweep.set_best_trial(-1);
  if (request->validate_only()) {
    for (int i = 0; i < 2; ++i) {
      v1::SweepTrial& trial = *sweep.add_trials();
      trial.set_index(i);
      for (const auto& [path, text] : request->spec().sweep().parameters()) {
        (*trial.mutable_values())[path] = absl::StrCat(0.0123456 + i);
      }
    }
    *response = sweep;
    return grpc::Status::OK;
  }
  const std::string name = Add(sweep);
  const std::lock_guard lock(mutex_);
  *response = *Find(name);
  return grpc::Status::OK;
}

grpc::Status FakeSweeps::GetSweep(grpc::ServerContext*, const v1::GetSweepRequest* request,
                                  v1::Sweep* response) {
  const std::lock_guard lock(mutex_);
  v1::Sweep* sweep = Find(request->name());
  if (sweep == nullptr) return NoSuchSweep(request->name());
  if (!changes_.empty()) {
    changes_.front()(*sweep);
    changes_.erase(changes_.begin());
  }
  *response = *sweep;
  if (!request->with_decisions()) response->clear_decisions();
  return grpc::Status::OK;
}

// A page begins after as many sweeps as its token says.
grpc::Status FakeSweeps::ListSweeps(grpc::ServerContext*, const v1::ListSweepsRequest* request,
                                    v1::ListSweepsResponse* response) {
  const std::lock_guard lock(mutex_);
  std::vector<v1::Sweep> fitting;
  for (auto sweep = sweeps_.rbegin(); sweep != sweeps_.rend(); ++sweep) {
    if (request->user().empty() || request->user() == sweep->user()) fitting.push_back(*sweep);
  }
  const size_t first = request->page_token().size();
  const size_t size = request->page_size() == 0 ? 100 : static_cast<size_t>(request->page_size());
  for (size_t i = first; i < std::min(fitting.size(), first + size); ++i) {
    v1::Sweep& listed = *response->add_sweeps();
    listed = fitting[i];
    listed.clear_trials();
    for (const v1::SweepTrial& trial : fitting[i].trials()) {
      if (trial.index() == listed.best_trial()) *listed.add_trials() = trial;
    }
    listed.clear_decisions();
  }
  if (first + size < fitting.size()) response->set_next_page_token(std::string(first + size, '+'));
  return grpc::Status::OK;
}

grpc::Status FakeSweeps::StopSweep(grpc::ServerContext*, const v1::StopSweepRequest* request,
                                   v1::Sweep* response) {
  const std::lock_guard lock(mutex_);
  last_stop_ = *request;
  v1::Sweep* sweep = Find(request->name());
  if (sweep == nullptr) return NoSuchSweep(request->name());
  sweep->set_state(v1::SWEEP_STATE_STOPPED);
  *response = *sweep;
  return grpc::Status::OK;
}

grpc::Status FakeSweeps::ResumeSweep(grpc::ServerContext*, const v1::ResumeSweepRequest* request,
                                     v1::Sweep* response) {
  const std::lock_guard lock(mutex_);
  last_resume_ = *request;
  v1::Sweep* sweep = Find(request->name());
  if (sweep == nullptr) return NoSuchSweep(request->name());
  sweep->set_state(v1::SWEEP_STATE_RUNNING);
  *response = *sweep;
  return grpc::Status::OK;
}

grpc::Status FakeSweeps::DeleteSweep(grpc::ServerContext*, const v1::DeleteSweepRequest* request,
                                     v1::DeleteSweepResponse*) {
  const std::lock_guard lock(mutex_);
  v1::Sweep* sweep = Find(request->name());
  if (sweep == nullptr) return NoSuchSweep(request->name());
  sweeps_.erase(sweeps_.begin() + (sweep - sweeps_.data()));
  return grpc::Status::OK;
}

}  // namespace trainyard::testing
