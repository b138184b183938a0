// Lets a browser sign in on a port: the page sends the user's token once, and has it in a cookie
// from then on that scripts cannot read and that other sites cannot send.
#pragma once

#include "server/http/exchange.h"
#include "server/http/routes.h"

namespace trainyard::http {

// Serves `/session`: POST of {"token": "tyk_..."} sets the cookie, and DELETE forgets it. The token
// is not checked: the next call says whether it is valid.
void AddSignIn(Routes& routes);

// Returns true for a POST to `/session` with a small body, which may come from anybody.
bool IsSignIn(const Request& request);

// Gives a request that has the cookie, and no other token, the header Authorization. A browser says
// from which page a request comes; only pages of this server may use the cookie.
void AdoptCookie(Request& request);

}  // namespace trainyard::http
