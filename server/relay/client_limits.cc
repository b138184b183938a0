// Forgets a client as soon as it has no connection any more.
#include "server/relay/client_limits.h"

namespace trainyard::relay {

ClientLimits::Counts ClientLimits::Of(const std::string& client) const {
  const auto found = counts_.find(client);
  return found == counts_.end() ? Counts{} : found->second;
}

void ClientLimits::BeginHandshake(const std::string& client) {
  ++counts_[client].handshakes;
  ++total_.handshakes;
}

void ClientLimits::EndHandshake(const std::string& client) {
  --counts_[client].handshakes;
  --total_.handshakes;
  Forget(client);
}

void ClientLimits::Open(const std::string& client) {
  ++counts_[client].connections;
  ++total_.connections;
}

void ClientLimits::Close(const std::string& client) {
  --counts_[client].connections;
  --total_.connections;
  Forget(client);
}

void ClientLimits::Forget(const std::string& client) {
  const auto found = counts_.find(client);
  if (found->second.handshakes == 0 && found->second.connections == 0) counts_.erase(found);
}

}  // namespace trainyard::relay
