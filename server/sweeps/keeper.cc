// Runs the thread that looks after all sweeps.
#include "server/sweeps/keeper.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/sweeps/view.h"

namespace trainyard::sweeps {

using core::sweeping::Entry;
using core::sweeping::EntryKind;

namespace {

// The actor in the history of jobs that the keeper steers.
std::string ActorOf(const store::SweepRecord& record) {
  return SweepName(record.number);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Keeper>> Keeper::Open(Options options, store::SweepStore& store,
                                                     runtime::Runtime& runtime,
                                                     const runtime::Board& board,
                                                     runtime::Notifier& notifier,
                                                     store::MetricsStore& metrics, Clock& clock) {
  std::unique_ptr<Keeper> keeper(
      new Keeper(std::move(options), store, runtime, board, metrics, clock));
  TY_RETURN_IF_ERROR(keeper->Load());
  keeper->subscription_ = notifier.Subscribe(
      std::nullopt, runtime::kJobChanged | runtime::kMetricsGrew, [it = keeper.get()](JobId job) {
        const MutexLock lock(&it->news_mutex_);
        const auto watched = it->watched_.find(job);
        if (watched == it->watched_.end()) return;
        if (it->news_.insert(watched->second).second) it->has_news_.Signal();
      });
  return keeper;
}

Keeper::~Keeper() {
  subscription_.reset();
  Stop();
}

absl::Status Keeper::Load() {
  const MutexLock lock(&mutex_);
  TY_ASSIGN_OR_RETURN(std::vector<store::SweepRecord> records, store_.ReadAll());
  for (store::SweepRecord& record : records) {
    const int64_t number = record.number;
    const auto load = [&]() -> absl::StatusOr<Sweep> {
      TY_ASSIGN_OR_RETURN(const store::SweepHistory history, store_.ReadHistory(number));
      return Sweep::Load(std::move(record), history);
    };
    absl::StatusOr<Sweep> sweep = load();
    if (!sweep.ok()) {
      LogError("a sweep cannot be read, and does not go on",
               {{"sweep", SweepName(number)}, {"error", sweep.status().ToString()}});
      continue;
    }
    for (int32_t i = 0; i < static_cast<int32_t>(sweep->state().trials().size()); ++i) {
      for (const JobId job : sweep->JobsOf(i)) Watch(job, number);
    }
    sweeps_.emplace(number, *std::move(sweep));
  }
  return absl::OkStatus();
}

void Keeper::Watch(JobId job, int64_t sweep) {
  const MutexLock lock(&news_mutex_);
  watched_[job] = sweep;
}

void Keeper::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Keeper::Stop() {
  {
    const MutexLock lock(&news_mutex_);
    is_stopping_ = true;
    has_news_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool Keeper::WaitForNews() {
  const MutexLock lock(&news_mutex_);
  if (news_.empty() && !is_stopping_) {
    has_news_.WaitWithTimeout(&news_mutex_, options_.look_every);
  }
  if (!news_.empty() && !is_stopping_) {
    has_news_.WaitWithTimeout(&news_mutex_, options_.gather);
  }
  return !is_stopping_;
}

void Keeper::Run() {
  absl::Duration looked_at_all = -absl::InfiniteDuration();
  do {
    std::set<int64_t> due;
    {
      const MutexLock lock(&news_mutex_);
      due.swap(news_);
    }
    const absl::Duration now = clock_.Uptime();
    if (now - looked_at_all >= options_.look_every) {
      looked_at_all = now;
      const MutexLock lock(&mutex_);
      for (const auto& [number, sweep] : sweeps_) {
        if (!sweep.is_settled()) due.insert(number);
      }
    }
    for (const int64_t number : due) LookAt(number);
  } while (WaitForNews());
}

absl::StatusOr<bool> Keeper::Append(Sweep& sweep, const std::vector<Entry>& happened) {
  const std::vector<Entry> entries = sweep.Extend(happened, NowUs());
  if (entries.empty()) return false;
  TY_RETURN_IF_ERROR(store_.Append(sweep.record().number, sweep.next_sequence(), entries));
  TY_RETURN_IF_ERROR(sweep.TakeOver(entries));
  return true;
}

void Keeper::LookAt(int64_t number) {
  std::vector<Action> actions;
  store::SweepRecord record;
  {
    const MutexLock lock(&mutex_);
    const auto found = sweeps_.find(number);
    if (found == sweeps_.end()) return;
    Sweep& sweep = found->second;
    absl::StatusOr<bool> appended = true;
    // A trial that trains on may have told its next value already.
    while (appended.ok() && *appended) {
      appended = Append(sweep, sweep.Observe(board_, metrics_, NowUs()));
    }
    if (!appended.ok()) {
      // Nothing was decided, since nothing was written down.
      if (sweep.trouble().empty()) {
        LogWarning("a sweep waits until its record can be written",
                   {{"sweep", SweepName(number)}, {"error", appended.status().ToString()}});
      }
      sweep.set_trouble(
          absl::StrCat("its record cannot be written: ", appended.status().message()));
      return;
    }
    actions = sweep.Actions(board_);
    if (actions.empty()) return;
    record = sweep.record();
  }
  Act(number, record, std::move(actions));
}

void Keeper::Act(int64_t number, const store::SweepRecord& record, std::vector<Action> actions) {
  struct Posted {
    Action action;
    std::future<absl::StatusOr<core::Reply>> reply;
  };
  std::vector<Posted> posted;
  for (Action& action : actions) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<core::Reply>>>();
    posted.push_back({action, promise->get_future()});
    const auto post = [&](core::Input input) {
      runtime_.Post(std::move(input), [promise](absl::StatusOr<core::Reply> reply) {
        promise->set_value(std::move(reply));
      });
    };
    switch (action.kind) {
      case Action::Kind::kSubmit: {
        absl::StatusOr<core::SubmitJob> submission = options_.submit(record, action.made);
        if (submission.ok()) {
          post(*std::move(submission));
        } else {
          promise->set_value(submission.status());
        }
        break;
      }
      case Action::Kind::kSuspend:
        post(core::SuspendJob{action.job, ActorOf(record), action.reason});
        break;
      case Action::Kind::kResume:
        post(core::ResumeJob{action.job, ActorOf(record)});
        break;
      case Action::Kind::kCancel:
        post(core::CancelJob{action.job, ActorOf(record), action.reason});
        break;
    }
  }
  for (Posted& each : posted) {
    const absl::StatusOr<core::Reply> reply = each.reply.get();
    // A verb that came too late has no effect, and the next look tells what became of the job.
    if (each.action.kind != Action::Kind::kSubmit) continue;
    const MutexLock lock(&mutex_);
    const auto found = sweeps_.find(number);
    if (found == sweeps_.end()) continue;
    const NewJob& made = each.action.made;
    if (!reply.ok()) {
      found->second.NoteRefusal(made, reply.status());
      continue;
    }
    const store::TrialJob job{made.trial, made.generation, reply->job};
    Watch(reply->job, number);
    found->second.NoteJob(job);
    // If this fails, the same job is found by its request after a restart.
    if (const absl::Status kept = store_.AddJob(number, job); !kept.ok()) {
      LogWarning("cannot note the job of a trial",
                 {{"trial", TrialName(number, made.trial)}, {"error", kept.ToString()}});
    }
  }
}

absl::StatusOr<int64_t> Keeper::Create(store::SweepRecord record) {
  const MutexLock lock(&mutex_);
  if (!record.request_id.empty()) {
    for (const auto& [number, sweep] : sweeps_) {
      const store::SweepRecord& known = sweep.record();
      if (known.user != record.user || known.request_id != record.request_id) continue;
      if (known.request_hash == record.request_hash) return number;
      return error::RequestIdReused(record.request_id);
    }
  }
  TY_ASSIGN_OR_RETURN(record.number, store_.Create(record));
  const int64_t number = record.number;
  TY_ASSIGN_OR_RETURN(Sweep sweep, Sweep::Load(std::move(record), {}));
  sweeps_.emplace(number, std::move(sweep));
  const MutexLock news_lock(&news_mutex_);
  news_.insert(number);
  has_news_.Signal();
  return number;
}

absl::Status Keeper::Ask(int64_t number, EntryKind kind, const std::string& actor) {
  const MutexLock lock(&mutex_);
  const auto found = sweeps_.find(number);
  if (found == sweeps_.end()) return error::SweepNotFound(number);
  if (kind == EntryKind::kResumeRequested && found->second.state().has_ended()) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "SWEEP_STATE_CONFLICT",
        absl::StrCat(SweepName(number), " has ended for good; `trainyard sweep resume ", number,
                     " --failed` runs failed trials again, if it has any"));
  }
  const bool is_to_stop = kind == EntryKind::kStopRequested || kind == EntryKind::kCancelRequested;
  if (is_to_stop && found->second.state().has_ended()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SWEEP_STATE_CONFLICT",
                     absl::StrCat(SweepName(number),
                                  " has ended, so there is nothing to stop; `trainyard sweep "
                                  "show ",
                                  number, "` says how it ended"));
  }
  Entry asked;
  asked.kind = kind;
  asked.text = actor;
  TY_RETURN_IF_ERROR(Append(found->second, {asked}).status());
  const MutexLock news_lock(&news_mutex_);
  news_.insert(number);
  has_news_.Signal();
  return absl::OkStatus();
}

absl::Status Keeper::Delete(int64_t number) {
  const MutexLock lock(&mutex_);
  const auto found = sweeps_.find(number);
  if (found == sweeps_.end()) return error::SweepNotFound(number);
  if (!found->second.state().has_ended()) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "SWEEP_STATE_CONFLICT",
        absl::StrCat(SweepName(number), " has not ended; cancel it first: trainyard sweep stop ",
                     number, " --cancel"));
  }
  TY_RETURN_IF_ERROR(store_.Delete(number));
  sweeps_.erase(found);
  const MutexLock news_lock(&news_mutex_);
  std::erase_if(watched_, [&](const auto& watched) { return watched.second == number; });
  return absl::OkStatus();
}

absl::StatusOr<store::SweepRecord> Keeper::Find(int64_t number) const {
  const MutexLock lock(&mutex_);
  const auto found = sweeps_.find(number);
  if (found == sweeps_.end()) return error::SweepNotFound(number);
  return found->second.record();
}

absl::StatusOr<v1::Sweep> Keeper::Show(int64_t number, std::optional<int64_t> decisions_after) {
  const MutexLock lock(&mutex_);
  const auto found = sweeps_.find(number);
  if (found == sweeps_.end()) return error::SweepNotFound(number);
  v1::Sweep shown = ViewOf(found->second, board_, NowUs(), /*with_trials=*/true);
  if (decisions_after.has_value()) {
    TY_ASSIGN_OR_RETURN(const store::SweepHistory history, store_.ReadHistory(number));
    AddDecisions(history.entries, *decisions_after, shown);
  }
  return shown;
}

void Keeper::ForEach(int64_t before, absl::FunctionRef<bool(const v1::Sweep&)> visit) {
  const MutexLock lock(&mutex_);
  auto it = before > 0 ? sweeps_.lower_bound(before) : sweeps_.end();
  while (it != sweeps_.begin()) {
    --it;
    if (!visit(ViewOf(it->second, board_, NowUs(), /*with_trials=*/false))) return;
  }
}

}  // namespace trainyard::sweeps

namespace trainyard::error {

absl::Status SweepNotFound(int64_t sweep) {
  return MakeError(
      absl::StatusCode::kNotFound, "SWEEP_NOT_FOUND",
      absl::StrCat("there is no ", SweepName(sweep), "; `trainyard sweep ls` lists the sweeps"));
}

}  // namespace trainyard::error
