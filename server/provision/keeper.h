// Keeps all providers going: it looks at what waits and at what the clusters say, writes down what
// it decides, and then acts on it. Whatever interrupts it, the next look finds what is left to do.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/core/yard/yard.h"
#include "server/provision/cluster.h"
#include "server/provision/core/step.h"
#include "server/provision/messenger.h"
#include "server/provision/provider_store.h"
#include "server/runtime/runtime.h"

namespace trainyard::provision {

// A provider as it is shown, with its pilots.
struct ProviderView {
  Provider provider;
  ClusterOptions cluster;
};

// The keeper. It is thread-safe, and borrows what it is given.
class Keeper {
 public:
  struct Options {
    // Makes what talks to the cluster of a provider. Its calls end soon once `is_stopping` is true.
    std::function<absl::StatusOr<std::unique_ptr<Cluster>>(
        const std::string& server_id, const ProviderSpec& spec, const ClusterOptions& options,
        const std::atomic<bool>& is_stopping)>
        connect;
    Messenger::Invite invite;
    // Ends the invitations of workers whose names begin with the first and who belong to no pilot
    // of the others.
    std::function<void(const std::string& prefix, const std::set<std::string>& pilots)> revoke_but;
    std::string server_id;  // of a server that has no providers yet; see IsServerId
    absl::Duration look_every = absl::Seconds(2);
    absl::Duration list_every = absl::Seconds(10);
  };

  // Loads all providers.
  static absl::StatusOr<std::unique_ptr<Keeper>> Open(Options options, ProviderStore& store,
                                                      runtime::Runtime& runtime, Clock& clock);
  ~Keeper();

  void Start();
  // It may be called again.
  void Stop();

  // Asks the cluster whether it would accept a pilot. It waits for the cluster.
  absl::Status TryOut(const ProviderSpec& spec, const ClusterOptions& cluster);
  // Adds a provider or changes it. Returns ALREADY_EXISTS (PROVIDER_EXISTS) if it is there and
  // `is_new`, PROVIDER_NOT_FOUND if it is not and not `is_new`, and what SetProvider returns.
  absl::Status Set(const ProviderSpec& spec, const ClusterOptions& cluster, bool is_new);
  // Changes the state by a function of core/step.h, and writes it down.
  absl::Status Change(const std::function<absl::Status(State&)>& change);

  // Returns PROVIDER_NOT_FOUND.
  absl::StatusOr<ProviderView> Find(const std::string& name) const;
  std::vector<ProviderView> List() const;

 private:
  Keeper(Options options, ProviderStore& store, runtime::Runtime& runtime, Clock& clock)
      : options_(std::move(options)),
        store_(store),
        runtime_(runtime),
        clock_(clock),
        begin_us_(absl::ToUnixMicros(clock.Now()) - absl::ToInt64Microseconds(clock.Uptime())) {}
  void Run();
  // Takes one turn.
  void Look();
  // Makes messengers for new providers and changed ones, and ends those of providers that are gone.
  // It waits for none of them: a cluster that does not answer holds up its own provider alone.
  void Connect();
  // Makes the messenger of a provider that has none or another spec. Returns null if there is none
  // for this spec yet.
  Messenger* MessengerOf(const std::string& server_id, const ProviderSpec& spec,
                         const ClusterOptions& options);
  // Tells which provider a pilot belongs to, and the node that this provider declares now.
  struct Declared {
    std::string provider;
    int32_t generation = 0;
    PilotResources node;
  };
  // Fills in what the yard knows, on the writer. Returns false if it does not answer.
  bool AskYard(Inputs& inputs);
  // Takes over one worker of a pilot, on the writer.
  void TakeWorker(const core::Yard& yard, const core::WorkerRecord& worker,
                  const std::map<std::string, Declared>& declared,
                  std::map<std::string, WorkerSight>& sights);
  // Ends the invitations that no pilot needs.
  void RevokeTokens();
  // Says to the yard which workers could be had.
  void Offer();
  void Act(const std::vector<Decision>& decisions);
  // Cordons workers that have little time left, and gives up those whose pilot has ended.
  void SteerWorkers(const Inputs& inputs);
  void Post(core::Input input);
  // Returns the time of all decisions, which nobody can set: the wall clock as it was at the start,
  // and what has passed since.
  int64_t NowUs() { return begin_us_ + absl::ToInt64Microseconds(clock_.Uptime()); }
  // Turns the times of a listing into that time.
  void TakeTimes(Listing& listing);

  const Options options_;
  ProviderStore& store_;
  runtime::Runtime& runtime_;
  Clock& clock_;
  const int64_t begin_us_;

  mutable Mutex mutex_;
  CondVar changed_;
  Kept kept_ ABSL_GUARDED_BY(mutex_);
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_trying_out_over_ = false;

  // Only the keeper's thread uses these.
  struct Connection {
    ProviderSpec spec;
    ClusterOptions cluster;
    std::unique_ptr<Messenger> messenger;
  };
  std::map<std::string, Connection> connections_;
  // These carry out the last orders for providers that are gone.
  std::vector<std::unique_ptr<Messenger>> finishing_;
  // The reasons for which there is no connection, by the name of the provider.
  std::map<std::string, std::string> unreachable_;
  std::map<std::string, core::Scheduling> workers_;  // of pilots, by name
  // A worker of each provider, for what is not declared. It tells nothing of another generation.
  struct Sample {
    int32_t generation = 0;
    core::WorkerRecord worker;
  };
  std::map<std::string, Sample> samples_;
  absl::Duration revoke_due_ = -absl::InfiniteDuration();
  // The workers that were offered, by provider.
  struct Offered {
    int32_t generation = 0;
    bool has_sample = false;
    int32_t count = 0;
    std::vector<std::string> datasets = {};

    friend bool operator==(const Offered&, const Offered&) = default;
  };
  std::map<std::string, Offered> offered_;
  absl::Duration offer_due_ = -absl::InfiniteDuration();
  std::thread thread_;
};

}  // namespace trainyard::provision

namespace trainyard::error {

// PROVIDER_EXISTS: `trainyard providers update` changes it.
absl::Status ProviderExists(const std::string& name);

}  // namespace trainyard::error
