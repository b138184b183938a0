// One request of HTTP and its answer, as handlers see them. Handlers know nothing of sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace trainyard::http {

struct Request {
  std::string method;
  std::string path;   // as it was sent, without the query
  std::string query;  // without the question mark
  // By name in lower case. A request that has a header twice was refused.
  std::map<std::string, std::string> headers;

  // Returns the value of a header by its name in lower case, or "".
  absl::string_view Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? absl::string_view() : found->second;
  }
};

// The body of a request, and what counts its bytes as long as they are there.
struct Body {
  std::string text = {};
  std::shared_ptr<const void> share = nullptr;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  // For answers in parts: what is sent if there was nothing to send for a while, so that both sides
  // notice when the other one has vanished.
  std::string idle_part = {};
};

// A handler answers exactly once: with Answer, or with Begin, any number of Sends and End. All of
// this may be called by any thread. What is sent to a client that has gone is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  virtual size_t body_size() const = 0;
  // Takes the body out. Handlers let it go before they begin a long answer, since its bytes count
  // against the client until then.
  virtual Body TakeBody() = 0;
  // Returns the channel to the services on which calls are those of the client: the services find
  // out who that is by the connection, and by nothing that the client has sent. Returns null if
  // there is no memory or descriptor for one.
  virtual std::shared_ptr<grpc::Channel> channel() = 0;

  virtual void Answer(Response response) = 0;

  // Begins an answer whose body comes in parts. Without a header Content-Length it is chunked.
  virtual void Begin(Response head) = 0;
  // Sends a part. `sent` is called once it is on its way, and says whether the client is still
  // there. So a handler that waits for it never holds more than one part.
  virtual void Send(std::string part, std::function<void(bool is_there)> sent) = 0;
  // Ends the body. If it is not complete, the client sees that the connection breaks.
  virtual void End(bool is_complete) = 0;

  // Calls `due` after a while, unless the answer is complete by then.
  virtual void After(absl::Duration delay, std::function<void()> due) = 0;

  // Sets what is to be done once the client has gone before the answer was complete.
  virtual void OnGone(std::function<void()> gone) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;
using Handler = std::function<void(const ExchangePtr& exchange)>;

}  // namespace trainyard::http
