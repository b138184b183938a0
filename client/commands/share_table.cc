// Draws the table of users with the devices that they hold and their share of all device time.
#include "client/commands/share_table.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

double Hours(const v1::Share& share) {
  return absl::ToDoubleHours(output::ToDuration(share.device_time()));
}

}  // namespace

std::string ShareTable(const v1::ListSharesResponse& response) {
  using output::Table;
  std::vector<const v1::Share*> shares;
  double all_hours = 0;
  for (const v1::Share& share : response.shares()) {
    shares.push_back(&share);
    all_hours += Hours(share);
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto* a, const auto* b) { return Hours(*a) > Hours(*b); });
  Table table({{"USER"},
               {"PROJECT"},
               {"DEVICES", Table::Align::kRight},
               {"QUEUED", Table::Align::kRight},
               {"DEVICE HOURS", Table::Align::kRight},
               {"SHARE", Table::Align::kRight},
               {"WEIGHT", Table::Align::kRight}});
  for (const v1::Share* share : shares) {
    const std::string weight = share->project().empty()
                                   ? absl::StrCat(share->weight())
                                   : absl::StrCat(share->weight(), " of ", share->project_weight());
    table.AddRow({share->user(), share->project(), absl::StrCat(share->devices()),
                  FormatCount(share->queued_jobs()), absl::StrFormat("%.2f", Hours(*share)),
                  all_hours > 0 ? output::PercentText(Hours(*share) / all_hours) : "", weight});
  }
  return table.Render();
}

}  // namespace trainyard::commands
