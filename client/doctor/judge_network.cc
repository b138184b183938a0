// Judges how ranks of several hosts would reach each other.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/doctor/judge.h"

namespace trainyard::doctor {
namespace {

Finding JudgeInterfaces(const NetworkFacts& network) {
  const std::string check = "interface of ranks";
  const auto chosen = ChooseInterface(network.address_flag, network.interfaces);
  if (!chosen.ok() && !network.address_flag.empty()) {
    return Problem(check,
                   absl::StrCat("The worker's --address does not fit: ", chosen.status().message()),
                   "Correct `address` in /etc/trainyard/worker.yaml.");
  }
  if (!chosen.ok()) {
    return Problem(check, "No network interface is up, not even the loopback.",
                   "Run `ip link set lo up` as root.");
  }
  if (chosen->is_loopback) {
    return Ok(check, "Only the loopback is up, so jobs over several hosts cannot run here.");
  }
  const std::string what =
      absl::StrCat("Ranks of several hosts listen on ", chosen->interface, ", ", chosen->address);
  std::vector<std::string> others;
  for (const InterfaceAddress& each : network.interfaces) {
    if (each.is_loopback || !each.is_running || each.interface == chosen->interface) continue;
    others.push_back(absl::StrCat(each.interface, " ", each.address));
  }
  if (!network.address_flag.empty()) {
    return Ok(check, absl::StrCat(what, ", as the worker's --address says."));
  }
  if (others.empty()) return Ok(check, absl::StrCat(what, "."));
  if (!chosen->has_default_route) {
    return Warning(
        check,
        absl::StrCat(what, ", which is a guess; there are also ", absl::StrJoin(others, ", "), "."),
        "Name the private network of the workers with the worker's flag --address, such "
        "as 10.1.0.0/16.");
  }
  return Ok(check,
            absl::StrCat(what, ", where the default route is; there are also ",
                         absl::StrJoin(others, ", "), ", which the worker's --address may name."));
}

Finding JudgeHostname(const NetworkFacts& network) {
  const std::string check = "name of the host";
  if (!network.hostname_error.empty()) {
    return Warning(check,
                   absl::StrCat("The name of this host, ", network.hostname,
                                ", leads to no address: ", network.hostname_error, "."),
                   "Add it to /etc/hosts. Certificates and programs such as PyTorch use it.");
  }
  return Ok(check, absl::StrCat("The name of this host, ", network.hostname, ", leads to ",
                                absl::StrJoin(network.hostname_addresses, ", "), "."));
}

}  // namespace

Findings JudgeNetwork(const NetworkFacts& network) {
  return {JudgeInterfaces(network), JudgeHostname(network)};
}

}  // namespace trainyard::doctor
