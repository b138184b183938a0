// Lists the parts of the server that handlers work with. The app owns them, and they outlive the
// handlers.
#pragma once

#include <memory>
#include <string>

#include "common/base/env.h"
#include "server/access/directory.h"
#include "server/notify/courier.h"
#include "server/rpc/resolve_cache.h"
#include "server/rpc/sign_in.h"
#include "server/rpc/tunnels.h"
#include "server/runtime/audit_log.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/board.h"
#include "server/runtime/checkpoint_verifier.h"
#include "server/runtime/code_store.h"
#include "server/runtime/connections.h"
#include "server/runtime/executor.h"
#include "server/runtime/log_store.h"
#include "server/runtime/notifier.h"
#include "server/runtime/runtime.h"
#include "server/store/access_store.h"
#include "server/store/metrics_store.h"
#include "server/store/sqlite/notify_store.h"
#include "server/store/sqlite/remark_store.h"
#include "server/store/sqlite/secret_store.h"
#include "server/store/sqlite/spec_store.h"
#include "server/store/store.h"

namespace trainyard::sweeps {
class Keeper;
}
namespace trainyard::provision {
struct ClusterOptions;
class Keeper;
struct ProviderSpec;
}  // namespace trainyard::provision

namespace trainyard::rpc {

class CheckpointImports;
class Streams;

struct Services {
  runtime::Runtime& runtime;
  runtime::Board& board;
  runtime::Notifier& notifier;
  // Each kind of work on files has threads of its own, so that none waits for another: this one
  // for all that is neither of the others.
  runtime::Executor& executor;
  runtime::Executor& metric_reads;
  runtime::Executor& metric_writes;
  runtime::LogStore& logs;
  runtime::BlobStore& blobs;
  runtime::CodeStore& code;
  runtime::CheckpointVerifier& verifier;
  store::MetricsStore& metrics;
  store::Store& store;  // for events only
  Streams& streams;
  Rng& rng;
  // These tell who calls, and who may do what.
  runtime::Connections& connections;
  access::Directory& directory;
  store::AccessStore& access_store;
  runtime::AuditLog& audit;
  std::string version;
  // Signs in callers of other hosts.
  std::shared_ptr<SignIn> sign_in = std::make_shared<SignIn>();
  std::unique_ptr<ResolveCache> resolve_cache = std::make_unique<ResolveCache>();
  // A server has these. They are null in tests that need none of them.
  store::SecretStore* secrets = nullptr;
  store::NotifyStore* targets = nullptr;
  notify::Courier* courier = nullptr;
  store::SpecStore* specs = nullptr;
  store::RemarkStore* remarks = nullptr;
  sweeps::Keeper* sweeps = nullptr;
  provision::Keeper* providers = nullptr;
  // Fills in what a new provider leaves open, and refuses what this server cannot do.
  std::function<absl::Status(provision::ProviderSpec&, provision::ClusterOptions&)>
      complete_provider = {};
  std::unique_ptr<Tunnels> tunnels = std::make_unique<Tunnels>();
  // It is null too where nothing is taken from buckets.
  CheckpointImports* checkpoint_imports = nullptr;
};

}  // namespace trainyard::rpc
