// Finds the handler of a request by its method and path.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/http/exchange.h"

namespace trainyard::http {

// The table of what is served. It is filled in before the first request and not changed then.
class Routes {
 public:
  // Adds a path, or, if it ends in '/', everything below it. `methods` are those that the handler
  // accepts.
  void Add(std::string path, std::vector<std::string> methods, Handler handler);

  // Sets who answers requests of browsers for pages, at paths that nothing else serves: GET, with
  // text/html among what is accepted.
  void SetPages(Handler handler) { pages_ = std::move(handler); }

  // Calls the handler of the longest path that fits, or answers: 404 if there is none, and 405 with
  // the methods that there are.
  void Handle(const ExchangePtr& exchange) const;

  size_t size() const { return routes_.size(); }

 private:
  struct Route {
    std::string path;
    std::vector<std::string> methods;
    Handler handler;
  };

  const Route* Find(absl::string_view path) const;

  std::vector<Route> routes_;
  Handler pages_;
};

}  // namespace trainyard::http
