// Makes keys and certificates: the small authority that a server has of its own, the certificates
// that it gives to itself and to its workers, and the requests that workers send.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::tls {

// A private key with its certificate, both as PEM.
struct KeyPair {
  std::string key;
  std::string certificate;
};

// Certificates are valid from a day before they were made, so that a clock that is slow by hours
// does no harm.
inline constexpr absl::Duration kBackdated = absl::Hours(24);
inline constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);
inline constexpr absl::Duration kServerLifetime = absl::Hours(24 * 90);
inline constexpr absl::Duration kWorkerLifetime = absl::Hours(24 * 30);

// Returns true once two thirds of the time from `not_before` to `not_after` have passed.
bool IsDueForRenewal(absl::Time not_before, absl::Time not_after, absl::Time now);

// Returns a new private key (ECDSA, P-256) as PEM.
std::string MakeKey();

// Makes the authority of a server. `host` is named in it, for people.
KeyPair MakeAuthority(absl::string_view host, absl::Time now);

// Returns true for the name of a host, with "*" for a whole part of it, and for an address.
bool IsHost(const std::string& text);

// Makes a certificate for the server, for kServerName and for `hosts`: names, "*.lab.example", and
// addresses. Returns INVALID_ARGUMENT for a host that is none.
absl::StatusOr<KeyPair> IssueForServer(const KeyPair& authority,
                                       const std::vector<std::string>& hosts, absl::Time now);

// Returns a request (PKCS #10, PEM) for a certificate of this worker.
absl::StatusOr<std::string> MakeWorkerRequest(absl::string_view key, absl::string_view worker);

// Answers a request with a certificate for `worker`, which is not valid before `earliest_begin`. Of
// the request only the key is used. Returns INVALID_ARGUMENT if it is damaged, is not signed by its
// own key, has a key of another kind, or asks for another worker or for anything besides.
absl::StatusOr<std::string> SignWorkerRequest(const KeyPair& authority, absl::string_view request,
                                              absl::string_view worker, absl::Time now,
                                              absl::Time earliest_begin = absl::InfinitePast());

}  // namespace trainyard::tls
