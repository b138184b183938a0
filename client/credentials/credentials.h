// Keeps what a client knows of servers to which it has signed in: the certificate that it trusts,
// and the user's token. Each server has a folder, below that of the config file:
//   servers/lab.example_7070/authority.pem   the certificate that was pinned
//   servers/lab.example_7070/name            the name that the server's certificate must have
//   servers/lab.example_7070/token           the token
//   servers/lab.example_7070/token_file      or the path of a file that has it, and is renewed
// Only the user may read them (modes 0700 and 0600).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"

namespace trainyard::credentials {

// Reads the address of a server as people write it, "lab.example" or "tls://lab.example:7070".
absl::StatusOr<rpc::Address> ReadServer(absl::string_view text);

// The folders of all servers. `config_home` is the folder of config files, such as ~/.config.
class CredentialStore {
 public:
  explicit CredentialStore(absl::string_view config_home);

  // Returns NOT_FOUND if the user has not signed in there, and PERMISSION_DENIED if other users may
  // read the token. A file that others renew is theirs to protect.
  absl::StatusOr<rpc::TlsOptions> Load(const rpc::Address& server) const;
  // Returns the certificate that was pinned for the server, or "" if none was. It does not read the
  // token, so that nobody gets rid of the pin by what is wrong with the token.
  absl::StatusOr<std::string> LoadPin(const rpc::Address& server) const;
  absl::Status Save(const rpc::Address& server, const rpc::TlsOptions& options) const;
  // Returns NOT_FOUND if there is nothing to forget.
  absl::Status Forget(const rpc::Address& server) const;

 private:
  std::string Folder(const rpc::Address& server) const;

  const std::string folder_;
};

// Returns why a server of TLS cannot be reached as it was before: CERTIFICATE_CHANGED if it shows
// another certificate than the pinned one, CERTIFICATE_REFUSED if that does not hold any more, or
// `failure`.
absl::Status ExplainFailure(const rpc::Address& server, const rpc::TlsOptions& pinned,
                            const absl::Status& failure, absl::Time now);

}  // namespace trainyard::credentials
