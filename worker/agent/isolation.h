// Decides how strictly the ranks of an attempt are kept apart from the rest of this host.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "worker/run_dir/isolation.h"

namespace trainyard::agent {

// Says what this host can do.
struct IsolationOffer {
  bool has_cgroups = false;
  std::string sandbox = {};            // the path of bubblewrap; empty if it is missing
  std::string container_runtime = {};  // "podman", ...; empty if there is none
  std::string container_program = {};  // its path

  friend bool operator==(const IsolationOffer&, const IsolationOffer&) = default;
};

// Looks for the programs. `find` returns the path of a program by its name, or an empty text.
IsolationOffer FindIsolation(bool has_cgroups, bool runs_as_owners,
                             const std::function<std::string(const std::string&)>& find);

// Returns what this host can do as labels of the worker, by which the server places jobs:
// isolation.sandbox=yes.
std::map<std::string, std::string> IsolationLabels(const IsolationOffer& offer);

// Returns the level for a job that asks for `asked` at least, without the control group's folder.
// Returns FAILED_PRECONDITION (ISOLATION_UNAVAILABLE) if this host cannot give it.
absl::StatusOr<run_dir::Isolation> ChooseIsolation(const IsolationOffer& offer,
                                                   run_dir::IsolationLevel asked, bool has_image);

}  // namespace trainyard::agent
