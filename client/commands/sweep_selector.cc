// Reads the names of sweeps, and fetches what they name.
#include "client/commands/sweep_selector.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

constexpr int kSweepPageMax = 1000;

}  // namespace

absl::StatusOr<std::string> ResolveSweep(link::ServerLink& link, const std::string& word) {
  if (word == "last" || word == "@") {
    bool has_more = false;
    TY_ASSIGN_OR_RETURN(const std::vector<v1::Sweep> newest, FetchSweeps(link, "", 1, has_more));
    if (newest.empty()) {
      return absl::NotFoundError("there is no sweep yet; `trainyard sweep run FILE` begins one");
    }
    return newest.front().name();
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripPrefix(word, "sweeps/"), &number) || number < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", word, "' is no sweep; expected 3, sweeps/3 or last. `trainyard sweep ls` lists them"));
  }
  return absl::StrCat("sweeps/", number);
}

absl::StatusOr<v1::Sweep> FetchSweep(link::ServerLink& link, const std::string& name,
                                     std::optional<int64_t> decisions_after) {
  v1::GetSweepRequest request;
  request.set_name(name);
  request.set_with_decisions(decisions_after.has_value());
  request.set_decisions_after(decisions_after.value_or(0));
  return link.Call(&v1::SweepService::Stub::GetSweep, request);
}

absl::StatusOr<std::vector<v1::Sweep>> FetchSweeps(link::ServerLink& link, const std::string& user,
                                                   int limit, bool& has_more) {
  v1::ListSweepsRequest request;
  request.set_user(user);
  std::vector<v1::Sweep> sweeps;
  has_more = false;
  while (static_cast<int>(sweeps.size()) < limit) {
    request.set_page_size(std::min(limit - static_cast<int>(sweeps.size()), kSweepPageMax));
    TY_ASSIGN_OR_RETURN(v1::ListSweepsResponse page,
                        link.Call(&v1::SweepService::Stub::ListSweeps, request));
    for (v1::Sweep& sweep : *page.mutable_sweeps()) sweeps.push_back(std::move(sweep));
    has_more = !page.next_page_token().empty();
    if (!has_more) break;
    request.set_page_token(page.next_page_token());
  }
  return sweeps;
}

}  // namespace trainyard::commands
