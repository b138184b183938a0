// Lets a browser sign in on a port: the page sends the user's token once, and has it in a cookie
// from then on that scripts cannot read and that other sites cannot send.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "server/http/exchange.h"
#include "server/http/routes.h"

namespace trainyard::http {

inline constexpr char kSignInPath[] = "/session";

// Serves `/session`: POST of {"token": "tyk_..."} sets the cookie, and DELETE forgets it. The token
// is not checked: the next call says whether it is valid.
void AddSignIn(Routes& routes);

// Returns true for a POST to `/session` with a small body, which may come from anybody.
bool IsSignIn(const Request& request);

// Returns the value of a cookie, or nothing if the request has none of that name.
std::optional<absl::string_view> CookieOf(const Request& request, absl::string_view name);

// Returns false if a header says that a page of another origin than `origin` has made the request.
// Pages of other ports of a host belong to the same site, so cookies go along with what they send.
bool IsOfOrigin(const Request& request, absl::string_view origin);

// Gives a request that has the cookie, and no other token, the header Authorization. A browser says
// from which page a request comes; only pages of this server may use the cookie.
void AdoptCookie(Request& request);

}  // namespace trainyard::http
