// Runs the thread that looks after all providers.
#include "server/provision/keeper.h"

#include <algorithm>
#include <future>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/provision/lots.h"

namespace trainyard::provision {
namespace {

constexpr char kActor[] = "provisioner";
// A worker that has less than this left takes no new job, or less than a quarter of its time limit.
constexpr int64_t kRestUs = 10 * kMinuteUs;
// A pass looks at no more possible workers of a provider than this, so that it stays short.
constexpr int32_t kOfferedMax = 64;
constexpr absl::Duration kOfferEvery = absl::Minutes(1);
constexpr absl::Duration kRevokeEvery = absl::Minutes(1);
// The memory of a GPU is known once one has joined, and until then it may be enough.
constexpr int64_t kUnknownMemoryBytes = int64_t{1} << 50;

// Providers in the order in which they are asked.
std::vector<const Provider*> InOrder(const State& state) {
  std::vector<const Provider*> providers;
  for (const auto& [name, provider] : state.providers) providers.push_back(&provider);
  std::stable_sort(providers.begin(), providers.end(), [](const Provider* a, const Provider* b) {
    return std::pair(a->spec.preference, a->spec.cost_per_hour) <
           std::pair(b->spec.preference, b->spec.cost_per_hour);
  });
  return providers;
}

bool IsAsked(const Provider& provider) {
  return !provider.is_paused && !provider.is_removing &&
         provider.breaker.state != Breaker::State::kOpen;
}

// Returns how a worker falls short of what its provider declares, as a sentence; empty if it does
// not. It may bring more.
std::string MismatchOf(const core::WorkerRecord& worker, const PilotResources& declared) {
  std::map<std::string, int32_t> counts;
  for (const core::DeviceRecord& device : worker.devices) ++counts[device.type];
  if (counts[declared.device_type] >= declared.devices) return "";
  std::string has;
  for (const auto& [type, count] : counts) {
    if (count == 0) continue;
    absl::StrAppend(&has, has.empty() ? "" : ", ", count, " x ", type);
  }
  return absl::StrCat("its worker ", worker.name, " has ", has.empty() ? "no device" : has,
                      ", and the provider says ", declared.devices, " x ", declared.device_type);
}

// Returns a worker of the provider, as far as it is known before it has joined. `sample` is one
// that has, or null.
core::WorkerRecord PossibleWorker(const ProviderSpec& spec, const core::WorkerRecord* sample) {
  core::WorkerRecord worker;
  for (int32_t i = 0; i < spec.node.devices; ++i) {
    core::DeviceRecord& device = worker.devices.emplace_back();
    device.name = absl::StrCat(spec.node.device_type, "-", i);
    device.type = spec.node.device_type;
    if (device.type == "cpu") {
      device.memory_bytes = spec.node.memory_bytes / spec.node.devices;
    } else {
      device.memory_bytes = kUnknownMemoryBytes;
    }
    device.bf16 = true;
    if (sample == nullptr) continue;
    for (const core::DeviceRecord& known : sample->devices) {
      if (known.type != device.type) continue;
      device.memory_bytes = known.memory_bytes;
      device.bf16 = known.bf16;
    }
  }
  if (sample != nullptr) worker.labels = sample->labels;
  if (spec.node.memory_bytes > 0) worker.host = {spec.node.cpus, spec.node.memory_bytes};
  return worker;
}

// Returns the data sets of a provider's workers, of which nobody knows the contents before one of
// them has joined; null if the provider does not name any.
std::shared_ptr<const core::WorkerDatasets> PossibleDatasets(const ProviderSpec& spec) {
  if (spec.datasets.empty()) return nullptr;
  auto datasets = std::make_shared<core::WorkerDatasets>();
  for (const std::string& name : spec.datasets) datasets->digests[name] = "";
  return datasets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Keeper>> Keeper::Open(Options options, ProviderStore& store,
                                                     runtime::Runtime& runtime, Clock& clock) {
  std::unique_ptr<Keeper> keeper(new Keeper(std::move(options), store, runtime, clock));
  const MutexLock lock(&keeper->mutex_);
  TY_ASSIGN_OR_RETURN(keeper->kept_, store.Load());
  if (keeper->kept_.state.server_id.empty()) {
    // It is written down before anything has a name with it, since all names would be those of a
    // stranger after a restore of a state without it.
    Kept next = keeper->kept_;
    next.state.server_id = keeper->options_.server_id;
    TY_RETURN_IF_ERROR(store.Save(keeper->kept_, next));
    keeper->kept_ = std::move(next);
  }
  WakeUp(keeper->kept_.state, keeper->NowUs());
  return keeper;
}

Keeper::~Keeper() {
  Stop();
}

void Keeper::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Keeper::Stop() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    changed_.SignalAll();
  }
  is_trying_out_over_ = true;
  if (thread_.joinable()) thread_.join();
}

void Keeper::Run() {
  while (true) {
    bool has_providers = false;
    {
      const MutexLock lock(&mutex_);
      has_providers = !kept_.state.providers.empty();
    }
    if (has_providers || !connections_.empty() || !finishing_.empty()) Look();
    const MutexLock lock(&mutex_);
    if (!has_news_ && !is_stopping_) {
      // Without providers, only a request for one changes anything.
      const bool rests =
          kept_.state.providers.empty() && connections_.empty() && finishing_.empty();
      changed_.WaitWithTimeout(&mutex_, rests ? absl::Hours(1) : options_.look_every);
    }
    has_news_ = false;
    if (is_stopping_) break;
  }
  // All of them end their calls at the same time.
  for (auto& [name, connection] : connections_) connection.messenger->Stop();
  for (const auto& messenger : finishing_) messenger->Stop();
  connections_.clear();
  finishing_.clear();
}

void Keeper::Look() {
  Connect();
  Offer();
  Inputs inputs;
  if (!AskYard(inputs)) return;
  for (auto& [name, connection] : connections_) {
    ProviderNews& news = inputs.news[name] = connection.messenger->TakeNews();
    if (news.listing.has_value()) TakeTimes(*news.listing);
  }
  for (const auto& [name, why] : unreachable_) {
    Listing& listing = inputs.news[name].listing.emplace();
    listing.begin_us = NowUs();
    listing.failure = why;
  }
  std::vector<Decision> decisions;
  {
    const MutexLock lock(&mutex_);
    inputs.now_us = NowUs();
    Kept next = kept_;
    decisions = Step(next.state, inputs);
    std::erase_if(next.clusters, [&next](const auto& entry) {
      return !next.state.providers.contains(entry.first);
    });
    const absl::Status saved = store_.Save(kept_, next);
    if (!saved.ok()) {
      // Nothing was decided, since nothing was written down. News of submissions are lost with it,
      // and the next lists tell them again.
      LogWarning("providers wait until their record can be written",
                 {{"error", std::string(saved.message())}});
      return;
    }
    kept_ = std::move(next);
  }
  Act(decisions);
  SteerWorkers(inputs);
  RevokeTokens();
}

void Keeper::TakeTimes(Listing& listing) {
  listing.begin_us += begin_us_;
  const int64_t ahead_us = NowUs() - absl::ToUnixMicros(clock_.Now());
  for (ListedPilot& pilot : listing.pilots) {
    if (pilot.start_us != 0) pilot.start_us += ahead_us;
    if (pilot.expire_us != 0) pilot.expire_us += ahead_us;
  }
}

void Keeper::RevokeTokens() {
  const absl::Duration now = clock_.Uptime();
  if (now < revoke_due_ || !options_.revoke_but) return;
  revoke_due_ = now + kRevokeEvery;
  std::string prefix;
  std::set<std::string> live;
  {
    const MutexLock lock(&mutex_);
    prefix = absl::StrCat("ty-", kept_.state.server_id, "-");
    for (const auto& [name, provider] : kept_.state.providers) {
      for (const auto& [number, pilot] : provider.pilots) {
        if (IsLive(pilot)) live.insert(pilot.name);
      }
    }
  }
  options_.revoke_but(prefix, live);
}

void Keeper::Connect() {
  Kept kept;
  {
    const MutexLock lock(&mutex_);
    kept = kept_;
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (kept.state.providers.contains(it->first)) {
      ++it;
      continue;
    }
    it->second.messenger->Finish();
    finishing_.push_back(std::move(it->second.messenger));
    it = connections_.erase(it);
  }
  std::erase_if(finishing_, [](const auto& messenger) { return messenger->IsOver(); });
  const auto is_gone = [&kept](const auto& entry) {
    return !kept.state.providers.contains(entry.first);
  };
  std::erase_if(unreachable_, is_gone);
  std::erase_if(samples_, is_gone);
  for (const auto& [name, provider] : kept.state.providers) {
    Messenger* messenger = MessengerOf(kept.state.server_id, provider.spec, kept.clusters.at(name));
    if (messenger == nullptr) continue;
    std::vector<std::string> foreign_ids;
    std::set<std::string> unanswered;
    for (const auto& [number, pilot] : provider.pilots) {
      if (IsLive(pilot) && !pilot.foreign_id.empty()) foreign_ids.push_back(pilot.foreign_id);
      if (pilot.state == PilotState::kWanted) unanswered.insert(pilot.name);
    }
    messenger->Watch(std::move(foreign_ids), std::move(unanswered));
  }
}

Messenger* Keeper::MessengerOf(const std::string& server_id, const ProviderSpec& spec,
                               const ClusterOptions& options) {
  const auto found = connections_.find(spec.name);
  const bool is_there = found != connections_.end();
  if (is_there && found->second.spec == spec && found->second.cluster == options) {
    return found->second.messenger.get();
  }
  if (is_there) {
    // The old one may be in the middle of a call, and two of them must not do the same.
    found->second.messenger->Retire();
    if (!found->second.messenger->IsOver()) return nullptr;
  }
  auto is_stopping = std::make_unique<std::atomic<bool>>(false);
  auto cluster = options_.connect(server_id, spec, options, *is_stopping);
  if (!cluster.ok()) {
    std::string why(cluster.status().message());
    std::string& told = unreachable_[spec.name];
    if (told != why) {
      LogWarning("a provider cannot be asked", {{"provider", spec.name}, {"error", why}});
    }
    told = std::move(why);
    return nullptr;
  }
  unreachable_.erase(spec.name);
  auto made = std::make_unique<Messenger>(std::move(is_stopping), *std::move(cluster), spec.nodes,
                                          options_.invite, options_.list_every);
  if (is_there) made->TakeOver(*found->second.messenger);
  Messenger* messenger = made.get();
  connections_.insert_or_assign(spec.name, Connection{spec, options, std::move(made)});
  return messenger;
}

void Keeper::Offer() {
  core::SetPossibleWorkers offer;
  std::map<std::string, Offered> offered;
  {
    const MutexLock lock(&mutex_);
    for (const Provider* provider : InOrder(kept_.state)) {
      const ProviderSpec& spec = provider->spec;
      core::PossibleWorkers possible;
      possible.provider = spec.name;
      const auto found = samples_.find(spec.name);
      const bool has_sample =
          found != samples_.end() && found->second.generation == provider->generation;
      possible.worker = PossibleWorker(spec, has_sample ? &found->second.worker : nullptr);
      possible.user = spec.owner;
      possible.datasets = PossibleDatasets(spec);
      // Those that are on their way are not workers yet, and so are still possible. One that is not
      // asked now may be later, so jobs that need it may be submitted.
      int32_t joined = 0;
      for (const auto& [number, pilot] : provider->pilots) {
        if (IsLive(pilot) && pilot.connect_us > 0) ++joined;
      }
      const int32_t pilots = provider->is_removing ? 0 : std::max(spec.max_pilots - joined, 0);
      possible.count =
          std::min(pilots * spec.nodes, std::max(kOfferedMax / spec.nodes, 1) * spec.nodes);
      offered[spec.name] = {provider->generation, has_sample, possible.count, spec.datasets};
      offer.workers.push_back(std::move(possible));
    }
  }
  // A yard that was loaded anew, after a full disk, knows nothing of it.
  const absl::Duration now = clock_.Uptime();
  if (offered == offered_ && now < offer_due_) return;
  offered_ = std::move(offered);
  offer_due_ = now + kOfferEvery;
  Post(std::move(offer));
}

bool Keeper::AskYard(Inputs& inputs) {
  std::vector<Wanted> wanted;
  std::string prefix;
  std::map<std::string, Declared> declared;  // by pilot
  {
    const MutexLock lock(&mutex_);
    prefix = absl::StrCat("ty-", kept_.state.server_id, "-");
    for (const Provider* provider : InOrder(kept_.state)) {
      if (IsAsked(*provider)) {
        wanted.push_back({provider->spec.name, provider->spec.nodes, {}});
      }
      for (const auto& [number, pilot] : provider->pilots) {
        // Others were asked for by what was declared then.
        if (!IsLive(pilot) || pilot.generation != provider->generation) continue;
        declared[pilot.name] = {provider->spec.name, provider->generation, provider->spec.node};
      }
    }
  }
  std::map<std::string, WorkerSight> sights;
  std::promise<bool> done;
  runtime_.Read([&](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) return done.set_value(false);
    const core::Now now = runtime_.Now();
    workers_.clear();
    for (const auto& [name, worker] : (*yard)->snapshot().workers) {
      if (absl::StartsWith(name, prefix)) TakeWorker(**yard, worker, declared, sights);
    }
    for (Wanted& one : wanted) one.workers = (*yard)->WantedOf(one.provider, now);
    done.set_value(true);
  });
  if (!done.get_future().get()) return false;
  for (auto& [pilot, sight] : sights) inputs.workers.push_back(std::move(sight));
  inputs.demand = LotsOf(wanted);
  return true;
}

void Keeper::TakeWorker(const core::Yard& yard, const core::WorkerRecord& worker,
                        const std::map<std::string, Declared>& declared,
                        std::map<std::string, WorkerSight>& sights) {
  const std::string& name = worker.name;
  workers_.emplace(name, worker.scheduling);
  const std::string pilot(PilotOfWorker(name));
  WorkerSight& sight = sights[pilot];
  sight.pilot = pilot;
  if (!yard.HoldersOn(name).empty() || !yard.HeldOn(name).empty()) ++sight.busy;
  if (!std::holds_alternative<core::worker_fsm::Active>(worker.state)) return;
  const bool drains = worker.scheduling != core::Scheduling::kEligible;
  sight.is_draining = drains && (sight.connected == 0 || sight.is_draining);
  ++sight.connected;
  const auto found = declared.find(pilot);
  if (found == declared.end()) return;
  std::string mismatch = MismatchOf(worker, found->second.node);
  if (mismatch.empty()) {
    samples_[found->second.provider] = {found->second.generation, worker};
  } else {
    sight.mismatch = std::move(mismatch);
  }
}

void Keeper::Act(const std::vector<Decision>& decisions) {
  for (const Decision& decision : decisions) {
    const auto connection = connections_.find(decision.provider);
    Messenger* messenger =
        connection == connections_.end() ? nullptr : connection->second.messenger.get();
    switch (decision.kind) {
      case DecisionKind::kSubmit:
        LogInfo("asking for a pilot", {{"provider", decision.provider}, {"pilot", decision.pilot}});
        if (messenger != nullptr) messenger->Submit(decision.pilot);
        break;
      case DecisionKind::kCancel:
        LogInfo("cancelling a pilot",
                {{"pilot", decision.pilot}, {"id", decision.foreign_id}, {"why", decision.reason}});
        if (messenger != nullptr) messenger->Cancel(decision.foreign_id);
        break;
      case DecisionKind::kDrain:
        for (const auto& [worker, scheduling] : workers_) {
          if (PilotOfWorker(worker) != decision.pilot) continue;
          Post(core::CordonWorker{worker, kActor, decision.reason});
        }
        break;
      case DecisionKind::kDropTokens:
        revoke_due_ = -absl::InfiniteDuration();
        if (messenger != nullptr) messenger->DropTokens(decision.pilot);
        break;
      case DecisionKind::kForget:
        if (messenger != nullptr) messenger->DropTokens(decision.pilot);
        break;
      case DecisionKind::kForgetProvider:
        break;
      case DecisionKind::kBreakerOpened:
      case DecisionKind::kBreakerHalfOpened:
      case DecisionKind::kBreakerClosed:
        LogWarning(decision.kind == DecisionKind::kBreakerOpened
                       ? "a provider fails, and is left alone for a while"
                   : decision.kind == DecisionKind::kBreakerHalfOpened
                       ? "a provider that failed is tried again"
                       : "a provider that failed works again",
                   {{"provider", decision.provider}, {"why", decision.reason}});
        break;
    }
  }
}

void Keeper::SteerWorkers(const Inputs& inputs) {
  std::vector<core::Input> orders;
  {
    const MutexLock lock(&mutex_);
    std::map<std::string, const Pilot*> pilots;
    std::map<std::string, const ProviderSpec*> specs;
    for (const auto& [name, provider] : kept_.state.providers) {
      for (const auto& [number, pilot] : provider.pilots) {
        pilots[pilot.name] = &pilot;
        specs[pilot.name] = &provider.spec;
      }
    }
    for (const auto& [worker, scheduling] : workers_) {
      const auto found = pilots.find(std::string(PilotOfWorker(worker)));
      if (found == pilots.end() || !IsLive(*found->second)) {
        // Its allocation is over, and so is everything that ran there.
        orders.emplace_back(
            core::DeclareWorkerLost{worker, kActor, "the allocation of the pilot has ended"});
        orders.emplace_back(core::DeleteWorker{worker, kActor, "the pilot has ended"});
        continue;
      }
      const Pilot& pilot = *found->second;
      const int64_t rest = std::min(kRestUs, specs.at(pilot.name)->time_limit_us / 4);
      if (pilot.expire_us > 0 && pilot.expire_us - inputs.now_us < rest &&
          scheduling == core::Scheduling::kEligible) {
        orders.emplace_back(
            core::CordonWorker{worker, kActor, "the time limit of the pilot is near"});
      }
    }
  }
  for (core::Input& order : orders) Post(std::move(order));
}

// An order that is refused now is given again in the next turn, if it is still wanted.
void Keeper::Post(core::Input input) {
  runtime_.Post(std::move(input), [](const absl::StatusOr<core::Reply>&) {});
}

absl::Status Keeper::TryOut(const ProviderSpec& spec, const ClusterOptions& cluster) {
  TY_RETURN_IF_ERROR(CheckProviderSpec(spec));
  std::string server_id;
  {
    const MutexLock lock(&mutex_);
    server_id = kept_.state.server_id;
  }
  TY_ASSIGN_OR_RETURN(const auto connected,
                      options_.connect(server_id, spec, cluster, is_trying_out_over_));
  return connected->TryOut();
}

absl::Status Keeper::Set(const ProviderSpec& spec, const ClusterOptions& cluster, bool is_new) {
  const MutexLock lock(&mutex_);
  const bool is_there = kept_.state.providers.contains(spec.name);
  if (is_there && is_new) return error::ProviderExists(spec.name);
  if (!is_there && !is_new) return error::ProviderNotFound(spec.name);
  Kept next = kept_;
  const bool is_other_request = is_there && kept_.clusters.at(spec.name) != cluster;
  TY_RETURN_IF_ERROR(SetProvider(next.state, spec, is_other_request));
  next.clusters[spec.name] = cluster;
  TY_RETURN_IF_ERROR(store_.Save(kept_, next));
  kept_ = std::move(next);
  has_news_ = true;
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status Keeper::Change(const std::function<absl::Status(State&)>& change) {
  const MutexLock lock(&mutex_);
  Kept next = kept_;
  TY_RETURN_IF_ERROR(change(next.state));
  TY_RETURN_IF_ERROR(store_.Save(kept_, next));
  kept_ = std::move(next);
  has_news_ = true;
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::StatusOr<ProviderView> Keeper::Find(const std::string& name) const {
  const MutexLock lock(&mutex_);
  const auto found = kept_.state.providers.find(name);
  if (found == kept_.state.providers.end()) return error::ProviderNotFound(name);
  return ProviderView{found->second, kept_.clusters.at(name)};
}

std::vector<ProviderView> Keeper::List() const {
  const MutexLock lock(&mutex_);
  std::vector<ProviderView> views;
  for (const auto& [name, provider] : kept_.state.providers) {
    views.push_back({provider, kept_.clusters.at(name)});
  }
  return views;
}

}  // namespace trainyard::provision

namespace trainyard::error {

absl::Status ProviderExists(const std::string& name) {
  return MakeError(absl::StatusCode::kAlreadyExists, "PROVIDER_EXISTS",
                   absl::StrCat("provider '", name, "' is there already; `trainyard providers ",
                                "update ", name, "` changes it, or choose another name"));
}

}  // namespace trainyard::error
