// Reads the line and the headers of a request, and refuses what nobody needs and smugglers use.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>

#include "server/http/exchange.h"

namespace trainyard::http {

// The reason why a request is answered without a look at its body.
struct Refusal {
  int status;
  std::string reason;
  std::string message;
};

// Fills in all of `request` but its body. Returns a refusal for a target that is no path, a header
// that must not come twice, any Transfer-Encoding, and an HTTP/1.1 request without a host.
std::optional<Refusal> ReadHead(
    const boost::beast::http::header<true, boost::beast::http::fields>& head, Request& request);

// Returns what stands before the body of an answer. `is_chunked` says that its size is not known.
std::string HeadText(const Response& response, bool is_chunked, bool keeps_alive);

}  // namespace trainyard::http
