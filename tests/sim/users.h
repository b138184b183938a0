// Simulates those who use the pool: people who submit and change their minds, and an operator. They
// know only what they were told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/options.h"
#include "tests/sim/random.h"
#include "tests/sim/server.h"
#include "tests/sim/trainers.h"
#include "tests/sim/transport.h"

namespace trainyard::sim {

// A submission that a user repeats until it is acknowledged.
struct Order {
  std::string request_id;  // empty if it is sent only once
  std::shared_ptr<const core::Submission> submission;
  JobId job;  // the job as which it was acknowledged; 0 before that
};

class Users {
 public:
  Users(World& world, const Options& options, Transport& transport, Server& server,
        Trainers& trainers, std::vector<std::unique_ptr<Host>>& hosts);

  void Begin();
  // From now on nobody submits jobs. What was set aside is taken back, and held jobs are resumed.
  void BeCalm();

  const std::vector<std::shared_ptr<Order>>& orders() const { return orders_; }
  // Called for acknowledged jobs. The first job of an array stands for all.
  std::function<void(const Order&)> on_acknowledged;
  // Called when a user was told that the job is deleted.
  std::function<void(JobId)> on_deleted;
  // Called when an operator has changed what the pool offers.
  std::function<void()> on_capacity_change;

 private:
  void Submit();
  void SubmitLongJob();
  void Send(const std::shared_ptr<Order>& order, int tries);
  core::Submission DrawSubmission();
  void DrawResources(core::Submission& submission);
  size_t DrawScript();
  void Verb();
  void Delete();
  void Operate();
  void Reserve();
  void SetQuota();
  void Tidy();
  bool IsFeasible(const core::Demand& demand) const;
  void Post(core::Input input);
  JobId AnyJob();

  World& world_;
  const Options& options_;
  Transport& transport_;
  Server& server_;
  Trainers& trainers_;
  std::vector<std::unique_ptr<Host>>& hosts_;
  Random resources_random_;
  Random one_host_random_;
  std::vector<std::shared_ptr<Order>> orders_;
  std::vector<JobId> known_;  // of acknowledgements
  bool is_calm_ = false;
  int requests_ = 0;
  int reservations_ = 0;
};

}  // namespace trainyard::sim
