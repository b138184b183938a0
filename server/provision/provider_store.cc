// Keeps each record as JSON, so that a newer server may add fields to it.
#include "server/provision/provider_store.h"

#include <fcntl.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "server/store/sqlite/migrations.h"

namespace trainyard::provision {

// These tell the library which fields each record has. It finds them by the types' own namespace.
NLOHMANN_JSON_SERIALIZE_ENUM(ProviderKind, {{ProviderKind::kSlurm, "SLURM"},
                                            {ProviderKind::kKubernetes, "KUBERNETES"}})
NLOHMANN_JSON_SERIALIZE_ENUM(PilotState, {{PilotState::kWanted, "WANTED"},
                                          {PilotState::kSubmitted, "SUBMITTED"},
                                          {PilotState::kQueued, "QUEUED"},
                                          {PilotState::kStarting, "STARTING"},
                                          {PilotState::kRunning, "RUNNING"},
                                          {PilotState::kEnding, "ENDING"},
                                          {PilotState::kEnded, "ENDED"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Breaker::State, {{Breaker::State::kClosed, "CLOSED"},
                                              {Breaker::State::kOpen, "OPEN"},
                                              {Breaker::State::kHalfOpen, "HALF_OPEN"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PilotResources, devices, device_type, cpus,
                                                memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProviderSpec, name, kind, owner, node, nodes,
                                                time_limit_us, min_pilots, max_pilots, backlog,
                                                idle_us, submit_interval_us, start_timeout_us,
                                                overflow_us, preference, cost_per_hour, datasets)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Breaker, state, failed_submissions, failed_starts,
                                                trips, until_us, first_probe, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Pilot, number, generation, name, foreign_id, state,
                                                create_us, submit_us, start_us, connect_us, end_us,
                                                expire_us, idle_since_us, unneeded_since_us,
                                                lost_since_us, drain_us, cancel_us, has_worked,
                                                foreign_reason, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ClusterOptions, arguments, folder, worker_program,
                                                server_address, pod, space, queue, kubeconfig,
                                                context)

namespace {

constexpr char kProviders1[] = R"sql(
CREATE TABLE meta (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  server_id TEXT NOT NULL,
  now_us INTEGER NOT NULL,
  next_number INTEGER NOT NULL
) STRICT;
CREATE TABLE providers (
  name TEXT NOT NULL PRIMARY KEY,
  record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE pilots (
  provider TEXT NOT NULL REFERENCES providers (name) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (provider, number)
) STRICT, WITHOUT ROWID;
)sql";

constexpr char kReadMeta[] = "SELECT server_id, now_us, next_number FROM meta";
constexpr char kReadProviders[] = "SELECT name, record FROM providers ORDER BY name";
constexpr char kReadPilots[] = "SELECT provider, number, record FROM pilots";
constexpr char kPutMeta[] =
    "INSERT OR REPLACE INTO meta (id, server_id, now_us, next_number) VALUES (1, ?, ?, ?)";
constexpr char kPutProvider[] =
    "INSERT INTO providers (name, record) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record = "
    "excluded.record";
constexpr char kDeleteProvider[] = "DELETE FROM providers WHERE name = ?";
constexpr char kPutPilot[] =
    "INSERT OR REPLACE INTO pilots (provider, number, record) VALUES (?, ?, ?)";
constexpr char kDeletePilot[] = "DELETE FROM pilots WHERE provider = ? AND number = ?";

// Everything of a provider but its pilots.
nlohmann::json JsonOf(const Provider& provider, const ClusterOptions& cluster) {
  return {{"spec", provider.spec},
          {"cluster", cluster},
          {"generation", provider.generation},
          {"proven_generation", provider.proven_generation},
          {"is_paused", provider.is_paused},
          {"is_removing", provider.is_removing},
          {"pause_reason", provider.pause_reason},
          {"unused_pilots", provider.unused_pilots},
          {"last_submit_us", provider.last_submit_us},
          {"breaker", provider.breaker}};
}

std::string Text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void TakeProvider(const nlohmann::json& json, Provider& provider, ClusterOptions& cluster) {
  json.at("spec").get_to(provider.spec);
  json.at("cluster").get_to(cluster);
  provider.generation = json.value("generation", provider.generation);
  provider.proven_generation = json.value("proven_generation", provider.proven_generation);
  provider.is_paused = json.value("is_paused", false);
  provider.is_removing = json.value("is_removing", false);
  provider.pause_reason = json.value("pause_reason", "");
  provider.unused_pilots = json.value("unused_pilots", 0);
  provider.last_submit_us = json.value("last_submit_us", int64_t{0});
  if (json.contains("breaker")) json.at("breaker").get_to(provider.breaker);
}

// Calls `take`, which may find that a record is not what it should be.
template <typename Take>
absl::Status Parse(const std::string& path, const std::string& text, Take take) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  // The library tells what is wrong with a field by exceptions alone.
  try {
    if (json.is_object()) {
      take(json);
      return absl::OkStatus();
    }
  } catch (const nlohmann::json::exception&) {
    return error::CorruptFile(path, "a record of a provider cannot be read");
  }
  return error::CorruptFile(path, "a record of a provider is no JSON");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProviderStore>> ProviderStore::Open(const std::string& path) {
  TY_RETURN_IF_ERROR(OpenRegularFile(path, O_WRONLY | O_CREAT, 0600).status());
  TY_ASSIGN_OR_RETURN(auto db, store::Database::Open(path, store::Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(store::Migrate(*db, "providers", {kProviders1}));
  return std::unique_ptr<ProviderStore>(new ProviderStore(std::move(db)));
}

absl::StatusOr<std::string> ProviderStore::LoadServerId() {
  store::Statement& meta = db_->Prepared(kReadMeta);
  TY_ASSIGN_OR_RETURN(const bool has_meta, meta.Step());
  std::string id = has_meta ? meta.Text(0) : "";
  meta.Reset();
  return id;
}

absl::StatusOr<Kept> ProviderStore::Load() {
  Kept kept;
  store::Statement& meta = db_->Prepared(kReadMeta);
  TY_ASSIGN_OR_RETURN(const bool has_meta, meta.Step());
  if (has_meta) {
    kept.state.server_id = meta.Text(0);
    kept.state.now_us = meta.Int(1);
    kept.state.next_number = meta.Int(2);
  }
  meta.Reset();
  store::Statement& providers = db_->Prepared(kReadProviders);
  while (true) {
    TY_ASSIGN_OR_RETURN(const bool row, providers.Step());
    if (!row) break;
    const std::string name = providers.Text(0);
    TY_RETURN_IF_ERROR(
        Parse(db_->path(), providers.Text(1), [&kept, &name](const nlohmann::json& json) {
          TakeProvider(json, kept.state.providers[name], kept.clusters[name]);
        }));
  }
  store::Statement& pilots = db_->Prepared(kReadPilots);
  while (true) {
    TY_ASSIGN_OR_RETURN(const bool row, pilots.Step());
    if (!row) break;
    const auto provider = kept.state.providers.find(pilots.Text(0));
    if (provider == kept.state.providers.end()) continue;
    Pilot& pilot = provider->second.pilots[pilots.Int(1)];
    TY_RETURN_IF_ERROR(Parse(db_->path(), pilots.Text(2),
                             [&pilot](const nlohmann::json& json) { json.get_to(pilot); }));
  }
  return kept;
}

absl::Status ProviderStore::Save(const Kept& before, const Kept& after) {
  store::Transaction transaction(*db_);
  bool has_changes = before.state.server_id != after.state.server_id ||
                     before.state.next_number != after.state.next_number;
  const auto run = [&has_changes](store::Statement& statement) {
    has_changes = true;
    return statement.Run();
  };
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (const auto& [name, provider] : before.state.providers) {
    if (after.state.providers.contains(name)) continue;
    TY_RETURN_IF_ERROR(run(db_->Prepared(kDeleteProvider).Bind(name)));
  }
  for (const auto& [name, provider] : after.state.providers) {
    const auto old = before.state.providers.find(name);
    const bool is_new = old == before.state.providers.end();
    const ClusterOptions& cluster = after.clusters.at(name);
    const std::string record = Text(JsonOf(provider, cluster));
    if (is_new || record != Text(JsonOf(old->second, before.clusters.at(name)))) {
      TY_RETURN_IF_ERROR(run(db_->Prepared(kPutProvider).Bind(name).Bind(record)));
    }
    for (const auto& [number, pilot] : provider.pilots) {
      if (!is_new) {
        const auto known = old->second.pilots.find(number);
        if (known != old->second.pilots.end() && known->second == pilot) continue;
      }
      const std::string text = Text(nlohmann::json(pilot));
      TY_RETURN_IF_ERROR(run(db_->Prepared(kPutPilot).Bind(name).Bind(number).Bind(text)));
    }
    if (is_new) continue;
    for (const auto& [number, pilot] : old->second.pilots) {
      if (provider.pilots.contains(number)) continue;
      TY_RETURN_IF_ERROR(run(db_->Prepared(kDeletePilot).Bind(name).Bind(number)));
    }
  }
  if (!has_changes) return absl::OkStatus();
  TY_RETURN_IF_ERROR(db_->Prepared(kPutMeta)
                         .Bind(after.state.server_id)
                         .Bind(after.state.now_us)
                         .Bind(after.state.next_number)
                         .Run());
  return transaction.Commit();
}

}  // namespace trainyard::provision
