// Writes into the audit log what was decided about calls: by the gate, and by handlers that can
// decide only once they have read the request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/access/caller.h"
#include "server/access/rules.h"
#include "server/rpc/services.h"

namespace trainyard::rpc {

// Writes an entry. `about` is cut if it is long. An error is the reason of a refusal.
void WriteDecision(const access::Rule& rule, const access::Caller& caller, Services& services,
                   absl::string_view about, const absl::Status& decision);

// Gathers what a handler decides. However many things the request names, the log gets at most one
// entry for those that are allowed and one for those that are refused, so that nobody can flood it.
// The gate writes the entries of calls that are allowed, unless the rule says that the handler
// decides further. The class is not thread-safe.
class Decisions {
 public:
  // `about` says what the request is about (ResourcesOf). The rest is borrowed.
  Decisions(const access::Rule& rule, const access::Caller& caller, Services& services,
            std::vector<std::string> about, bool is_trial = false);
  // Writes what was not written yet. If nothing was decided, because the request has a mistake, the
  // log has only calls for other users.
  ~Decisions();
  Decisions(const Decisions&) = delete;
  Decisions& operator=(const Decisions&) = delete;

  // Takes the decision about all that the request is about, and returns it.
  absl::Status Take(absl::Status decision);
  // Takes the decision about one of several things, and returns it.
  absl::Status Take(absl::string_view about, absl::Status decision);
  // Writes the entries. A handler calls it before it answers, so that whoever has the answer finds
  // them.
  void Write();

 private:
  // An entry that is not written yet.
  struct Entry {
    std::string about;
    absl::Status decision;
  };
  static void Add(absl::string_view about, absl::Status decision, std::optional<Entry>& entry);

  const access::Rule& rule_;
  const access::Caller& caller_;
  Services& services_;
  const std::vector<std::string> about_;
  const bool is_trial_;
  std::optional<Entry> allowed_;
  std::optional<Entry> refused_;
  bool is_written_ = false;
};

}  // namespace trainyard::rpc
