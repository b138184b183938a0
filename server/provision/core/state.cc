// Counts pilots, and names their states.
#include "server/provision/core/state.h"

namespace trainyard::provision {

absl::string_view PilotStateWord(PilotState state) {
  switch (state) {
    case PilotState::kWanted:
      return "WANTED";
    case PilotState::kSubmitted:
      return "SUBMITTED";
    case PilotState::kQueued:
      return "QUEUED";
    case PilotState::kStarting:
      return "STARTING";
    case PilotState::kRunning:
      return "RUNNING";
    case PilotState::kEnding:
      return "ENDING";
    case PilotState::kEnded:
      return "ENDED";
  }
  return "UNKNOWN";
}

int32_t CountLive(const Provider& provider) {
  int32_t count = provider.strangers;
  for (const auto& [number, pilot] : provider.pilots) count += IsLive(pilot) ? 1 : 0;
  return count;
}

}  // namespace trainyard::provision
