// audit shows what was done, by whom, and what was refused.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct AuditOptions {
  std::string user;
  std::string resource;
  std::string since;
  bool refused = false;
  int limit = 100;
};

// The server gives at most so many entries at a time.
constexpr int kPageMax = 1000;

absl::StatusOr<std::vector<v1::AuditEntry>> ReadEntries(const Context& context,
                                                        const AuditOptions& options) {
  v1::ListAuditEntriesRequest request;
  request.set_user(options.user);
  request.set_resource(options.resource);
  request.set_only_refused(options.refused);
  if (!options.since.empty()) {
    TY_ASSIGN_OR_RETURN(const absl::Duration age, ParseDuration(options.since));
    *request.mutable_max_age() = spec::ToProto(age);
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::vector<v1::AuditEntry> entries;
  do {
    request.set_page_size(std::min(kPageMax, options.limit - static_cast<int>(entries.size())));
    TY_ASSIGN_OR_RETURN(v1::ListAuditEntriesResponse response,
                        link->Call(&v1::AccessService::Stub::ListAuditEntries, request));
    for (v1::AuditEntry& entry : *response.mutable_entries()) entries.push_back(std::move(entry));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty() && static_cast<int>(entries.size()) < options.limit);
  return entries;
}

Result Audit(const Context& context, const AuditOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::vector<v1::AuditEntry> entries, ReadEntries(context, options));
  std::vector<std::string> names;
  for (const v1::AuditEntry& entry : entries) names.push_back(absl::StrCat(entry.sequence()));
  if (PrintMessages(context, entries, names)) return link::kOk;
  if (entries.empty()) {
    context.Say("nothing of that kind is in the audit log");
    return link::kOk;
  }
  Table table({{"TIME"}, {"USER"}, {"FROM"}, {"CALL"}, {"ABOUT"}, {"RESULT"}});
  for (const v1::AuditEntry& entry : entries) {
    const std::string user = entry.real_user().empty()
                                 ? entry.user()
                                 : absl::StrCat(entry.real_user(), " as ", entry.user());
    table.AddRow({output::TimeText(entry.time()), user,
                  entry.address().empty() ? "this host" : entry.address(), entry.rpc(),
                  entry.resource(),
                  entry.allowed() ? "allowed" : absl::StrCat("refused: ", entry.reason())});
  }
  context.out << table.Render();
  return link::kOk;
}

}  // namespace

void AddAudit(VerbTable& verbs) {
  verbs.Add<AuditOptions>(
      "audit", "Show what was changed or refused, newest first", "--user anna --refused --since 1d",
      [](client::Flags& flags, AuditOptions& options) {
        flags.Value("--user", options.user, "Only calls of this user, or for this user");
        flags.Value("--about", options.resource, "Only calls about this, such as jobs/12");
        flags.Value("--since", options.since, "Only calls that are younger than this, such as 2h")
            .ShownAs("DURATION");
        flags.Switch("--refused", options.refused, "Only calls that were refused");
        flags.Value("--limit", options.limit, "At most this many entries").Range(1, 1'000'000);
      },
      Audit);
}

}  // namespace trainyard::commands
