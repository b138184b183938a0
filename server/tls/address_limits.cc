// Forgets an address as soon as it has no connection any more.
#include "server/tls/address_limits.h"

namespace trainyard::tls {

AddressLimits::Counts AddressLimits::Of(const std::string& address) const {
  const auto found = counts_.find(address);
  return found == counts_.end() ? Counts{} : found->second;
}

void AddressLimits::BeginHandshake(const std::string& address) {
  ++counts_[address].handshakes;
  ++total_.handshakes;
}

void AddressLimits::EndHandshake(const std::string& address) {
  --counts_[address].handshakes;
  --total_.handshakes;
  Forget(address);
}

void AddressLimits::Open(const std::string& address) {
  ++counts_[address].connections;
  ++total_.connections;
}

void AddressLimits::Close(const std::string& address) {
  --counts_[address].connections;
  --total_.connections;
  Forget(address);
}

void AddressLimits::Forget(const std::string& address) {
  const auto found = counts_.find(address);
  if (found->second.handshakes == 0 && found->second.connections == 0) counts_.erase(found);
}

}  // namespace trainyard::tls
