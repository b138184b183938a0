// The ranks: which processes really run where, and what they do. This is the truth that the
// checkers look at; no simulated daemon reads it, except through run directories and exits.
//
// A gang gathers (every rank knows the address of every other), trains in step, writes checkpoints,
// and ends: all of it, or one rank by itself, whereupon its peers notice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/run_directory.h"
#include "tests/sim/world.h"
#include "worker/checkpoint/checkpoint_pace.h"
#include "worker/supervisor/supervisor_core.h"

namespace trainyard::sim {

// The script by which the trainers of a job act.
struct Script {
  enum class End { kGood, kUserError, kTransient, kPoison, kSignal, kHang, kHidden, kOdd };
  End end = End::kGood;
  int64_t total_steps = 100;
  Time step_time = kSecond;
  int64_t checkpoint_every = 0;  // steps; 0: only when asked, and at the end
  bool automatic = false;        // the trainer chooses the distance of checkpoints instead
  Time wait_time = 0;            // by which a checkpoint of its own choice delays the training
  Time write_time = kSecond;     // of a checkpoint
  Time upload_time = kSecond;
  Time load_time = kSecond;
  int64_t fail_step = 0;
  int fail_rank = 0;
};

struct RankStart {
  int host = 0;
  std::string device;
  AttemptId attempt;
  int64_t token = 0;
  int rank = 0;
  int world_size = 0;
  int64_t resume_step = 0;
  size_t script = 0;
};

// One process.
struct RankProcess {
  RankStart start;
  int64_t pid = 0;
  bool has_term = false;
  bool is_ending = false;  // its exit is under way
  bool device_is_bad = false;
};

struct Gang {
  enum class Phase { kGathering, kTraining, kEnding, kOver };
  AttemptId attempt;
  int64_t token = 0;
  int world_size = 0;
  size_t script = 0;
  std::map<int, int64_t> pids;  // by rank; those alive
  Phase phase = Phase::kGathering;
  Time begun = 0;    // the first rank started
  int64_t step = 0;  // as of `since`
  Time since = 0;
  bool hangs = false;
  int64_t saved = -1;   // step of the last complete checkpoint
  bool writes = false;  // a checkpoint
  bool write_again = false;
  int64_t answered_request = 0;
  int64_t turn = 0;        // outdated events are skipped
  bool finished = false;   // trained to the end
  Time partial_since = 0;  // some of its ranks live, others do not; 0: whole
  Time training_begun = 0;
  std::optional<checkpoint::CheckpointPace> pace;  // if the trainer chooses
};
using GangKey = std::pair<AttemptId, int64_t>;  // attempt, token

class Trainers {
 public:
  explicit Trainers(World& world) : world_(world) {}

  // The simulation sets it.
  std::function<RunDirectory*(int host, AttemptId attempt)> directory_of;
  std::function<void(int host, AttemptId attempt)> on_change;  // files have changed
  std::function<void(const RankProcess& process, const supervisor::RankEnd& end)> on_exit;
  std::function<void(const RankProcess& process)> on_start;
  std::function<bool(int host)> is_disk_full;
  std::function<bool(int host, const std::string& device)> is_device_bad;

  size_t AddScript(Script script);
  const Script& script(size_t index) const { return scripts_[index]; }

  void Start(const RankStart& start);
  enum class Signal { kTerm, kKill };
  void Send(int64_t pid, Signal signal);
  // Called when control/checkpoint has a new number.
  void CheckpointAsked(GangKey key);
  // Keys have come to a run directory.
  void TryGather(GangKey key);
  // All processes of the host die at once, without a word.
  void KillHost(int host);

  // Faults.
  void CrashRank(int64_t pid);
  void Hang(GangKey key, Time how_long);
  void DeviceFails(int host, const std::string& device);

  const std::map<int64_t, RankProcess>& processes() const { return processes_; }
  const std::map<GangKey, Gang>& gangs() const { return gangs_; }
  std::vector<int64_t> PidsOf(int host, AttemptId attempt) const;
  int64_t StepOf(const Gang& gang) const;
  // Returns the content of progress.json.
  run_dir::Progress ProgressOf(const RankProcess& process) const;

 private:
  Gang* Find(GangKey key);
  void Plan(Gang& gang);
  void Reach(GangKey key, int64_t turn, int64_t step);
  void BeginTraining(GangKey key);
  void Fail(Gang& gang);
  void BeginWrite(Gang& gang, bool last);
  void EndWrite(GangKey key, int64_t step, bool last);
  void StopTraining(GangKey key, bool finished);
  void ExitAll(Gang& gang, int but);
  void Exit(int64_t pid, Time delay, supervisor::RankEnd end);
  void Gone(int64_t pid, const supervisor::RankEnd& end);
  void PeersNotice(Gang& gang);

  World& world_;
  std::vector<Script> scripts_;
  std::map<int64_t, RankProcess> processes_;  // alive
  std::map<GangKey, Gang> gangs_;             // of which some process lives
  int64_t next_pid_ = 100;
};

}  // namespace trainyard::sim
