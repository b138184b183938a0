// Checks the promises from outside: by what really runs (trainers), by what the disk says, and by
// what users were told.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/sim/faults.h"
#include "tests/sim/host.h"
#include "tests/sim/options.h"
#include "tests/sim/server.h"
#include "tests/sim/trainers.h"
#include "tests/sim/transport.h"
#include "tests/sim/users.h"

namespace trainyard::sim {

class Checkers {
 public:
  Checkers(World& world, const Options& options, Server& server, Disk& disk, Trainers& trainers,
           Transport& transport, Faults& faults, std::vector<std::unique_ptr<Host>>& hosts);

  // Records that a rank has really started, or ended.
  void ProcessStarts(const RankProcess& process);
  void ProcessEnds(const RankProcess& process, const supervisor::RankEnd& end);
  // Records that a turn is on the disk.
  void Committed(const core::Snapshot& before, const core::Delta& delta);
  void Acknowledged(const Order& order);
  // Records that a user was told that the job is deleted.
  void Deleted(JobId job);
  // Makes the checks that are made only now and then.
  void Look();
  // Records that the server has started: its knowledge is now what it has promised.
  void Started();
  // Returns true if the pool is at rest: every job has ended, nothing runs, nothing is held.
  bool IsQuiet(std::string* why) const;

 private:
  // These check how a turn changes the records. They are implemented in checkers_records.cc.
  struct Change {
    const core::Snapshot& before;
    const core::Delta& delta;
    const core::JobRecord* Job(JobId id) const;
    const core::WorkerRecord* Worker(const std::string& name) const;
    const core::AttemptRecord* Attempt(AttemptId id) const;
  };
  void CheckRecords(const Change& change);
  void CheckJob(const Change& change, const core::JobRecord& job);
  void CheckNewJob(const Change& change, const core::JobRecord& job);
  void CheckStop(const Change& change, const core::JobRecord& job);
  void CheckPlacement(const Change& change, const core::AttemptRecord& attempt);
  void CheckPrecision(const Change& change, const core::AttemptRecord& attempt);
  void CheckResume(const Change& change, const core::AttemptRecord& attempt);
  void CheckTurn(const Change& change, const core::AttemptRecord& attempt);
  void CheckHosts(const Change& change, const core::AttemptRecord& placed);
  void CheckDeviceQuota(const Change& change, const core::JobRecord& job);
  void CheckQueueQuota(const Change& change, const core::JobRecord& job);
  void CheckDamageIsFree(const Change& change, const core::JobRecord& job);
  void CheckCheckpoint(const Change& change, const core::CheckpointRecord& checkpoint);
  void CheckDeleted(const Change& change, const core::CheckpointRef& id);
  void NoteEvent(const core::EventRecord& event);
  void CheckDeletedJob(JobId id);

  void LookAtGangs();
  void LookAtStops();
  void LookAtPreemptions();
  void LookAtBackoffs();
  void LookAtDeafWorkers();
  void LookAtClones();
  Time StopBound(const core::Submission& submission) const;

  World& world_;
  const Options& options_;
  Server& server_;
  Disk& disk_;
  Trainers& trainers_;
  Transport& transport_;
  Faults& faults_;
  std::vector<std::unique_ptr<Host>>& hosts_;

  std::map<JobId, std::shared_ptr<const core::Submission>> acknowledged_;
  std::set<JobId> deleted_;    // jobs whose deletion is on the disk
  std::set<JobId> deletions_;  // jobs whose deletion was acknowledged
  std::map<JobId, std::shared_ptr<const core::Submission>> submissions_;  // of all jobs ever
  std::map<std::string, JobId> named_;                     // jobs by the name of their submission
  std::set<std::tuple<AttemptId, int, int64_t>> started_;  // attempt, rank, boot of its host
  std::set<AttemptId> finished_;                           // trained to their end
  std::map<AttemptId, int64_t> saved_;  // step of the checkpoint with which rank 0 ended well
  std::set<AttemptId> cut_short_;       // the server continued before everything had arrived
  std::map<AttemptId, Time> stopping_since_;
  std::map<std::string, Time> draining_since_;
  std::map<std::string, Time> joined_;  // the first registration of each worker
  std::map<JobId, Time> backoff_since_;
  struct Asked {
    Time when = 0;
    bool committed = false;
  };
  std::map<JobId, Asked> asked_;            // jobs that were asked for a checkpoint before a stop
  std::set<JobId> claimants_;               // jobs for which others are asked to go
  std::map<JobId, Time> preempting_since_;  // by the job for which others are stopped
};

}  // namespace trainyard::sim
