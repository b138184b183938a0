// Reads the files by which kubectl finds a cluster.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/kubernetes/api_client.h"

namespace trainyard::provision::kubernetes {

struct Kubeconfig {
  trainyard::kubernetes::Access access;
  std::string space;  // the namespace of the context; empty if it names none
};

// Reads a context of a kubeconfig; "" is the current one. Relative paths in it begin at `folder`.
// Returns INVALID_ARGUMENT for what cannot be used, without a part of the file in the message: it
// may be another file that somebody has named. Programs that make tokens (exec, auth-provider) are
// refused, since the server runs nothing that a file names.
absl::StatusOr<Kubeconfig> ParseKubeconfig(absl::string_view text, absl::string_view context,
                                           const std::string& folder);

// Reads the same from a file. Only our own user or root may be able to write it, since it says to
// whom the server shows tokens.
absl::StatusOr<Kubeconfig> ReadKubeconfig(const std::string& path, absl::string_view context);

}  // namespace trainyard::provision::kubernetes
