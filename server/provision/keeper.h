// Keeps all providers going: it looks at what waits and at what the clusters say, writes down what
// it decides, and then acts on it. Whatever interrupts it, the next look finds what is left to do.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
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
    // Makes what talks to the cluster of a provider.
    std::function<absl::StatusOr<std::unique_ptr<Cluster>>(
        const std::string& server_id, const ProviderSpec& spec, const ClusterOptions& options)>
        connect;
    Messenger::Invite invite;
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
      : options_(std::move(options)), store_(store), runtime_(runtime), clock_(clock) {}
  void Run();
  // Takes one turn.
  void Look();
  // Makes messengers for new providers and changed ones, and ends those of providers that are gone.
  void Connect();
  // Fills in what the yard knows, on the writer. Returns false if it does not answer.
  bool AskYard(Inputs& inputs);
  // Says to the yard which workers could be had.
  void Offer();
  void Act(const std::vector<Decision>& decisions);
  // Cordons workers that have little time left, and gives up those whose pilot has ended.
  void SteerWorkers(const Inputs& inputs);
  void Post(core::Input input);
  int64_t NowUs() { return absl::ToUnixMicros(clock_.Now()); }

  const Options options_;
  ProviderStore& store_;
  runtime::Runtime& runtime_;
  Clock& clock_;

  mutable Mutex mutex_;
  CondVar changed_;
  Kept kept_ ABSL_GUARDED_BY(mutex_);
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Only the keeper's thread uses these.
  struct Connection {
    ProviderSpec spec;
    ClusterOptions cluster;
    std::unique_ptr<Messenger> messenger;
  };
  std::map<std::string, Connection> connections_;
  // The reasons for which there is no connection, by the name of the provider.
  std::map<std::string, std::string> unreachable_;
  std::map<std::string, core::Scheduling> workers_;  // of pilots, by name
  // The generation and the number of workers that were offered, by provider.
  std::map<std::string, std::pair<int32_t, int32_t>> offered_;
  absl::Duration offer_due_ = -absl::InfiniteDuration();
  std::thread thread_;
};

}  // namespace trainyard::provision

namespace trainyard::error {

// PROVIDER_EXISTS: `trainyard providers update` changes it.
absl::Status ProviderExists(const std::string& name);

}  // namespace trainyard::error
