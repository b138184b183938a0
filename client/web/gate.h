// Decides which requests of browsers reach the server with the rights of the user. The port is one
// of this machine, to which other users, and pages of other sites in the user's own browser, can
// send requests as well.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/http/exchange.h"

namespace trainyard::web {

// A link with a code that is good once gives a browser a cookie, and the cookie is the user's word
// for all that follows. It belongs to one thread.
class Gate {
 public:
  explicit Gate(int port);

  // Returns the link that signs a browser in and shows the page at `path`, such as "/jobs/12".
  std::string LinkTo(absl::string_view path) const;
  // Returns the answer to a request that must not be served, or nothing for one of the user.
  std::optional<http::Response> Check(http::Request& request);

 private:
  std::optional<http::Response> SignIn(const http::Request& request, bool is_signed_in);
  // Has the browser forget the cookie.
  http::Response SignOut() const;
  bool HasCookie(const http::Request& request) const;

  const int port_;
  const std::string cookie_;  // its name: cookies of all ports of a host have one box
  const std::string secret_;
  const std::string code_;
  bool is_code_used_ = false;
};

}  // namespace trainyard::web
