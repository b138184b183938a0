// Finds a rank's place in its group.
#include "worker/parallel/group.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::parallel {
namespace {

constexpr size_t kMaxName = 40;

bool IsNameCharacter(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) ||
         absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_';
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

}  // namespace

Membership MembershipOf(const Group& group, int rank, int world_size) {
  TY_CHECK(rank >= 0 && rank < world_size);
  if (group.members.empty()) {
    Membership whole{.rank = rank, .members = std::vector<int>(static_cast<size_t>(world_size))};
    std::iota(whole.members.begin(), whole.members.end(), 0);
    return whole;
  }
  TY_CHECK(IsName(group.name));
  const std::vector<int>& members = group.members;
  TY_CHECK(std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) ==
           members.end());
  TY_CHECK(members.front() >= 0 && members.back() < world_size);
  const auto place = std::find(members.begin(), members.end(), rank);
  TY_CHECK(place != members.end());
  return {.rank = static_cast<int>(place - members.begin()),
          .members = members,
          .key_prefix = absl::StrCat(group.name, ".")};
}

}  // namespace trainyard::parallel
