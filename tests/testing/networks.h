// Hosts of a test's own on one machine: network namespaces without names, each with one interface
// `eth0`, joined by a switch in a namespace of its own. The kernel removes all of it with the last
// process in it, so that nothing is left even if a test is killed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

class SlowSwitch;

// The networks. The class is not thread-safe.
class Networks {
 public:
  // Hosts 0 to count - 1 with the addresses 10.71.0.2 on. With a delay, every frame stays for that
  // time in the switch; without one, the kernel's bridge joins them. Returns UNAVAILABLE with the
  // reason if namespaces cannot be made.
  static absl::StatusOr<std::unique_ptr<Networks>> Make(int hosts, absl::Duration delay = {});
  ~Networks();
  Networks(const Networks&) = delete;
  Networks& operator=(const Networks&) = delete;

  static std::string Address(int host);
  // Returns a namespace for Process::Options, which lives as long as this object.
  int Namespace(int host) const { return hosts_[static_cast<size_t>(host)].get(); }

  // Pulls the host's cable at the switch, or plugs it in. Peers get no answer, not even a refusal.
  absl::Status SetPlugged(int host, bool is_plugged);
  // Loses what one host sends to another, without a word to either, or carries it again. The other
  // way is not touched.
  absl::Status SetOneWay(int from, int to, bool is_lost);

 private:
  Networks() = default;

  // Runs `ip ARGS` within a namespace.
  absl::Status Ip(const UniqueFd& network_namespace, const std::string& args);
  absl::Status AddHost(int host, bool has_bridge);

  TempDir scratch_;
  UniqueFd switch_;
  std::vector<UniqueFd> hosts_;
  std::unique_ptr<SlowSwitch> slow_switch_;
};

}  // namespace trainyard::testing
