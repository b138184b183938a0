// Keeps the tunnels that are being served, by their names.
#include "worker/agent/tunnel_host.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace trainyard::agent {

TunnelHost::TunnelHost(v1::AgentService::StubInterface& stub, Session& session, std::string helper)
    : stub_(stub), session_(session), helper_(std::move(helper)) {}

TunnelHost::~TunnelHost() {
  Stop();
}

void TunnelHost::Serve(const WantedTunnel& wanted, std::optional<TunnelTarget> target) {
  const absl::MutexLock lock(&mutex_);
  Reap();
  if (runs_.contains(wanted.id)) return;
  if (runs_.size() >= kTunnelsMax) {
    LogWarning("a tunnel is not served, for there are too many",
               {{"tunnels", absl::StrCat(runs_.size())}});
    return;
  }
  auto run = std::make_unique<TunnelRun>(stub_, helper_);
  run->Start(wanted, session_.Get(), std::move(target));
  runs_[wanted.id] = std::move(run);
}

void TunnelHost::Stop() {
  std::map<std::string, std::unique_ptr<TunnelRun>> runs;
  {
    const absl::MutexLock lock(&mutex_);
    runs.swap(runs_);
  }
  for (const auto& [id, run] : runs) run->Cancel();
}

size_t TunnelHost::size() {
  const absl::MutexLock lock(&mutex_);
  Reap();
  return runs_.size();
}

void TunnelHost::Reap() {
  std::erase_if(runs_, [](const auto& entry) { return entry.second->is_done(); });
}

}  // namespace trainyard::agent
