// shares shows who uses the pool.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/share_table.h"
#include "client/commands/verbs.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

Result ListShares(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListSharesResponse response,
                      link->Call(&v1::SharingService::Stub::ListShares, v1::ListSharesRequest()));
  std::vector<std::string> names;
  for (const v1::Share& share : response.shares()) {
    names.push_back(
        absl::StrCat(share.project(), share.project().empty() ? "" : "/", share.user()));
  }
  if (PrintMessages(context, response.shares(), names)) return link::kOk;
  if (names.empty()) {
    context.Say("nobody has used the pool yet");
  } else {
    context.out << ShareTable(response);
  }
  return link::kOk;
}

}  // namespace

void AddShares(VerbTable& verbs) {
  verbs.Add("shares", "Show who uses the pool", "", ListShares);
}

}  // namespace trainyard::commands
