#include "client/commands/device_table.h"

#include "absl/strings/str_cat.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/strings.h"

namespace trainyard::commands {

using output::Table;

std::string DeviceHealth(const v1::Device& device) {
  if (!device.quarantine().empty()) return absl::StrCat("SET ASIDE (", device.quarantine(), ")");
  const std::string health = output::HealthText(device.health());
  return device.health_reason().empty() ? health
                                        : absl::StrCat(health, " (", device.health_reason(), ")");
}

std::string DeviceTable(const v1::ListWorkersResponse& response) {
  Table table({{"WORKER"},
               {"DEVICE"},
               {"TYPE"},
               {"HEALTH"},
               {"THREADS", Table::Align::kRight},
               {"MEMORY", Table::Align::kRight},
               {"HELD BY"},
               {"PRODUCT"}});
  for (const v1::Worker& worker : response.workers()) {
    for (const v1::Device& device : worker.devices()) {
      table.AddRow({output::ShortName(worker.name()), device.name(), device.type(),
                    DeviceHealth(device),
                    device.threads() > 0 ? absl::StrCat(device.threads()) : "",
                    device.memory_bytes() > 0 ? FormatBytes(device.memory_bytes()) : "",
                    device.attempt(), device.product()});
    }
  }
  return table.Render();
}

}  // namespace trainyard::commands
