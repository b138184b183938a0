// The promises that must hold at every moment, and those that must come true in time.
#include "tests/sim/checkers.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/daemon.h"

namespace trainyard::sim {
namespace {

using core::PartState;

// The longest life of a gang that is not whole: until it has gathered, and after a rank was lost.
constexpr Time kGatherBound = 6 * kMinute;
constexpr Time kPartialBound = 2 * kMinute;
// A busy host may need this long beyond a grace.
constexpr Time kKillSlack = 10 * kSecond;
// This covers messages that were on their way when a host went deaf.
constexpr Time kDeafSlack = kMinute;

bool Holds(PartState state) {
  return state == PartState::kAssigned || state == PartState::kStarting ||
         state == PartState::kRunning || state == PartState::kStopping;
}

}  // namespace

Checkers::Checkers(World& world, const Options& options, Server& server, Disk& disk,
                   Trainers& trainers, Transport& transport, Faults& faults,
                   std::vector<std::unique_ptr<Host>>& hosts)
    : world_(world),
      options_(options),
      server_(server),
      disk_(disk),
      trainers_(trainers),
      transport_(transport),
      faults_(faults),
      hosts_(hosts) {}

void Checkers::ProcessStarts(const RankProcess& process) {
  const RankStart& start = process.start;
  const std::string who = absl::StrCat(AttemptName(start.attempt), " rank ", start.rank);
  for (const auto& [pid, other] : trainers_.processes()) {
    if (pid == process.pid) continue;
    if (other.start.host == start.host && other.start.device == start.device &&
        !start.device.empty()) {
      world_.Violate("a device hosts one rank",
                     absl::StrCat(who, " starts on ", start.device, " of host ", start.host,
                                  " beside ", AttemptName(other.start.attempt)));
    }
    if (other.start.attempt.job == start.attempt.job && other.start.attempt != start.attempt) {
      world_.Violate("one attempt of a job runs",
                     absl::StrCat(who, " starts while ", AttemptName(other.start.attempt),
                                  " runs on host ", other.start.host));
    }
  }
  // After a power loss, nothing of its first start may be left.
  const int64_t boot = hosts_[static_cast<size_t>(start.host)]->boots();
  if (!started_.insert({start.attempt, start.rank, boot}).second) {
    world_.Violate("a rank of an attempt starts once", who);
  }
  const auto record = disk_.state().attempts.find(start.attempt);
  if (record == disk_.state().attempts.end()) {
    world_.Violate("what is acted upon is durable", absl::StrCat(who, " is on no disk"));
    return;
  }
  const auto& ranks = record->second.ranks;
  const std::string& host = hosts_[static_cast<size_t>(start.host)]->name;
  const bool is_placed = std::any_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
    return rank.rank == start.rank && rank.worker == host && rank.device == start.device;
  });
  if (!is_placed || static_cast<int>(ranks.size()) != start.world_size) {
    world_.Violate("gangs are whole",
                   absl::StrCat(who, " starts in a world of ", start.world_size, " on ", host, " ",
                                start.device, "; ", ranks.size(), " ranks were placed"));
  }
}

void Checkers::ProcessEnds(const RankProcess& process, const supervisor::RankEnd& end) {
  if (process.start.rank != 0 || end.signal != 0 || !end.result.has_value()) return;
  const auto gang = trainers_.gangs().find({process.start.attempt, process.start.token});
  if (gang == trainers_.gangs().end() || gang->second.phase != Gang::Phase::kEnding) return;
  if (end.result->outcome == run_dir::Outcome::kSucceeded && gang->second.finished) {
    finished_.insert(process.start.attempt);
  }
  const bool well = end.result->outcome == run_dir::Outcome::kSucceeded ||
                    end.result->outcome == run_dir::Outcome::kStopped;
  if (well) saved_[process.start.attempt] = gang->second.saved;
}

void Checkers::Acknowledged(const Order& order) {
  acknowledged_[order.job] = order.submission;
}

void Checkers::Deleted(JobId job) {
  deletions_.insert(job);
}

void Checkers::Started() {
  for (const JobId id : deletions_) {
    if (server_.yard()->FindJob(id) != nullptr) {
      world_.Violate("a deleted job stays away", absl::StrCat(JobName(id), " is back"));
    }
  }
  for (const auto& [id, submission] : acknowledged_) {
    if (deleted_.count(id) > 0) continue;
    const core::JobRecord* job = server_.yard()->FindJob(id);
    if (job == nullptr || !(*job->submission == *submission)) {
      world_.Violate("acknowledged is present",
                     absl::StrCat(JobName(id), " was acknowledged and is ",
                                  job == nullptr ? "gone" : "another"));
    }
  }
}

void Checkers::Look() {
  LookAtGangs();
  LookAtStops();
  LookAtPreemptions();
  LookAtBackoffs();
  LookAtDeafWorkers();
  LookAtClones();
}

void Checkers::LookAtGangs() {
  for (const auto& [key, gang] : trainers_.gangs()) {
    if (gang.partial_since == 0) continue;
    const bool gathers = gang.phase == Gang::Phase::kGathering;
    const Time bound = gathers ? kGatherBound : kPartialBound;
    if (world_.now() - gang.partial_since < bound) continue;
    world_.Violate("gangs are whole",
                   absl::StrCat(AttemptName(gang.attempt), " has run with ", gang.pids.size(),
                                " of ", gang.world_size, " ranks for ",
                                (world_.now() - gang.partial_since) / kSecond, " s"));
  }
}

// Returns the longest time until an attempt ends: the worker is away, and every deadline runs out
// in turn.
Time Checkers::StopBound(const core::Submission& submission) const {
  const core::Config& config = options_.config;
  return config.lease_us + submission.disconnect_keep_us + config.lease_grace_us +
         config.checkpoint_grace_us + config.lost_margin_us + config.drain_limit_us + kMinute;
}

void Checkers::LookAtStops() {
  for (const auto& host : hosts_) {
    if (host->is_disk_full) return;  // nothing can be asked of a supervisor then
    for (const auto& [id, dir] : host->directories) {
      const SupervisorProcess* supervisor = host->SupervisorOf(id);
      if (supervisor == nullptr || supervisor->stop_asked() == 0) continue;
      const Time late = world_.now() - supervisor->stop_asked() - supervisor->stop_grace();
      if (late < kKillSlack || trainers_.PidsOf(host->number, id).empty()) continue;
      world_.Violate("stops end in time",
                     absl::StrCat("ranks of ", AttemptName(id), " live on ", host->name, " ",
                                  late / kSecond, " s after their grace"));
    }
  }
  if (!server_.is_up()) return;
  const Time up = server_.up_since();
  for (const auto& [id, since] : stopping_since_) {
    const core::Submission& submission = *disk_.state().jobs.at(id.job).submission;
    if (world_.now() - std::max({since, up, faults_.last()}) < StopBound(submission)) continue;
    world_.Violate("stops end in time", absl::StrCat(AttemptName(id), " has been stopping for ",
                                                     (world_.now() - since) / kSecond, " s"));
  }
  for (const auto& [worker, since] : draining_since_) {
    for (const auto& [id, attempt] : disk_.state().attempts) {
      if (core::attempt_fsm::IsFinal(attempt.state)) continue;
      const core::Submission& submission = *disk_.state().jobs.at(id.job).submission;
      const Time bound = StopBound(submission) + options_.config.checkpoint_wait_us;
      if (world_.now() - std::max(since, up) < bound) continue;
      for (const core::AttemptPart& part : attempt.parts) {
        if (part.worker != worker || !Holds(part.state)) continue;
        world_.Violate("a drained worker is empty in time",
                       absl::StrCat(AttemptName(id), " still holds devices of ", worker));
      }
    }
  }
}

// A job for which others were stopped must start, unless the world has changed since.
void Checkers::LookAtPreemptions() {
  if (!server_.is_up()) return;
  for (const auto& [id, since] : preempting_since_) {
    if (server_.up_since() > since || faults_.last() > since - kMinute) continue;
    const core::JobRecord& job = disk_.state().jobs.at(id);
    const Time bound = StopBound(*job.submission) + options_.config.checkpoint_wait_us;
    if (world_.now() - since < bound) continue;
    if (!std::holds_alternative<core::job_fsm::Queued>(job.state)) continue;
    world_.Violate("nobody is preempted for nothing",
                   absl::StrCat("others were stopped for ", JobName(id), " ",
                                (world_.now() - since) / kSecond, " s ago; it still waits"));
  }
}

// This holds whatever the wall clocks say.
void Checkers::LookAtBackoffs() {
  if (!server_.is_up()) return;
  const Time bound = options_.config.backoff_max_us + kMinute;
  for (const auto& [id, since] : backoff_since_) {
    if (world_.now() - std::max(since, server_.up_since()) < bound) continue;
    for (const std::string& reason : server_.yard()->QueueReasons(id)) {
      if (!absl::StartsWith(reason, "backoff until")) continue;
      world_.Violate("a backoff ends in time", absl::StrCat(JobName(id), ": ", reason));
    }
  }
}

// A worker that does not hear gets no ranks. It has one lease from its first registration, from
// each start of the server, and from the report that counts the last answer that it has heard. That
// report may come late, because the daemon was stopped or because a message was lost.
void Checkers::LookAtDeafWorkers() {
  if (!server_.is_up()) return;
  for (const auto& host : hosts_) {
    const auto joined = joined_.find(host->name);
    if (joined == joined_.end()) continue;
    const Time heard = std::max(joined->second, host->daemon->last_heard());
    const Time since =
        std::max({heard, server_.up_since(), transport_.link(host->number).last_loss});
    if (world_.now() - since < options_.config.lease_us + kDeafSlack) continue;
    const core::WorkerRecord* worker = server_.yard()->FindWorker(host->name);
    if (worker == nullptr) continue;
    if (!std::holds_alternative<core::worker_fsm::Active>(worker->state)) continue;
    world_.Violate("a worker that does not hear is not ACTIVE",
                   absl::StrCat(host->name, " has heard nothing for ",
                                (world_.now() - heard) / kSecond, " s"));
  }
}

// Every clone leads to the submissions that it comes from, and no submission of deleted jobs is
// kept unless a clone leads to it.
void Checkers::LookAtClones() {
  if (deleted_.empty()) return;
  const core::Snapshot& state = disk_.state();
  std::set<JobId> needed;
  for (const auto& [id, job] : state.jobs) {
    JobId origin = job.submission->cloned_from;
    while (origin != JobId{}) {
      const core::KnownSubmission known = core::FindSubmission(state, origin);
      const auto original = submissions_.find(origin);
      if (known.submission == nullptr || original == submissions_.end() ||
          !(*known.submission == *original->second)) {
        world_.Violate("a clone leaves the spec of its original",
                       absl::StrCat(JobName(id), " comes from ", JobName(origin)));
        return;
      }
      needed.insert(known.id);
      origin = known.submission->cloned_from;
    }
  }
  for (const auto& [id, submission] : state.kept_submissions) {
    if (needed.count(id) > 0) continue;
    world_.Violate("what nobody needs any more goes",
                   absl::StrCat("the submission of ", JobName(id), " is kept for nobody"));
  }
}

bool Checkers::IsQuiet(std::string* why) const {
  for (const auto& [id, job] : disk_.state().jobs) {
    if (core::job_fsm::IsFinal(job.state)) continue;
    *why = absl::StrCat(JobName(id), " is ", core::job_fsm::Name(job.state));
    if (server_.yard() != nullptr) {
      for (const std::string& reason : server_.yard()->QueueReasons(id)) {
        absl::StrAppend(why, "; ", reason);
      }
    }
    return false;
  }
  if (!trainers_.processes().empty()) {
    *why = absl::StrCat(trainers_.processes().size(), " ranks still run");
    return false;
  }
  for (const auto& host : hosts_) {
    if (!host->directories.empty()) {
      *why = absl::StrCat(host->name, " still has the run directory of ",
                          AttemptName(host->directories.begin()->first));
      return false;
    }
    if (server_.yard() == nullptr || !server_.yard()->HoldersOn(host->name).empty()) {
      *why = absl::StrCat("devices of ", host->name, " are still held");
      return false;
    }
  }
  return true;
}

}  // namespace trainyard::sim
